package sqlite

import (
	"context"
	"errors"
	"hash/maphash"
	"os"
	"sync"

	"github.com/weftmesh/weft/services/memory/internal/store"
)

var errClosed = errors.New("the memory store is closed")

// pool keeps the databases in use open, and of the others those used last, up to max.
//
// A caller holds a slot from acquire to release. There are max slots, so a caller that has to open
// a database finds an idle one to close.
type pool struct {
	max   int
	path  func(store.Scope) string
	slots chan struct{}
	// tenants is taken for reading to acquire, for writing to remove: nothing of a tenant is opened
	// while something of it is removed. Striped by the tenant's hash.
	tenants [64]sync.RWMutex
	seed    maphash.Seed

	mu     sync.Mutex
	open   map[store.Scope]*database
	tick   uint64
	closed bool
}

func newPool(limit int, path func(store.Scope) string) *pool {
	return &pool{
		max: limit, path: path, slots: make(chan struct{}, limit),
		seed: maphash.MakeSeed(), open: map[store.Scope]*database{},
	}
}

func (p *pool) tenant(name string) *sync.RWMutex {
	return &p.tenants[maphash.String(p.seed, name)%uint64(len(p.tenants))]
}

// acquire gives the open database of sc, to be given back with release. Without create it gives nil
// if there is none on disk.
func (p *pool) acquire(ctx context.Context, sc store.Scope, create bool) (*database, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	db, err := p.find(ctx, sc, create)
	if db == nil {
		<-p.slots
	}
	return db, err
}

func (p *pool) find(ctx context.Context, sc store.Scope, create bool) (*database, error) {
	lock := p.tenant(sc.Tenant)
	lock.RLock()
	defer lock.RUnlock()
	for {
		db, e, err := p.enter(sc, create)
		if db == nil || err != nil {
			return nil, err
		}
		wait := db.ready
		switch e {
		case connects:
			db.err = db.connect(p.path(sc))
			close(db.ready)
		case closing:
			wait = db.gone
		}
		select {
		case <-wait:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if e == closing {
			if err != nil {
				return nil, err
			}
			continue
		}
		if err == nil {
			err = db.err
		}
		if err != nil {
			p.leave(db)
			return nil, err
		}
		return db, nil
	}
}

// entry says what enter found.
type entry int

const (
	uses     entry = iota // an entry that is open or being opened; the caller is a user of it
	connects              // a new one; the caller is a user, and has to connect it
	closing               // one that is being closed; the caller is no user, and waits until it is gone
)

func (p *pool) enter(sc store.Scope, create bool) (*database, entry, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, uses, errClosed
	}
	p.tick++
	if db := p.open[sc]; db != nil {
		defer p.mu.Unlock()
		if db.closing {
			return db, closing, nil
		}
		db.refs++
		db.used = p.tick
		return db, uses, nil
	}
	if !create {
		if _, err := os.Stat(p.path(sc)); err != nil {
			p.mu.Unlock()
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			return nil, uses, err
		}
	}
	victim := p.victim()
	db := &database{
		scope: sc, refs: 1, used: p.tick,
		ready: make(chan struct{}), drained: make(chan struct{}), gone: make(chan struct{}),
		group: group{turn: make(chan struct{}, 1)},
	}
	p.open[sc] = db
	p.mu.Unlock()
	if victim != nil {
		_ = p.shut(victim) // its writes are on disk; what is left to fail is its tidying
	}
	return db, connects, nil
}

// victim marks the idle database that was used longest ago for closing, if there are too many.
func (p *pool) victim() *database {
	if len(p.open) < p.max {
		return nil
	}
	var oldest *database
	for _, db := range p.open {
		if db.refs == 0 && !db.closing && (oldest == nil || db.used < oldest.used) {
			oldest = db
		}
	}
	if oldest != nil {
		oldest.closing = true
	}
	return oldest
}

// shut closes a database that is marked closing and has no user.
func (p *pool) shut(db *database) error {
	err := db.disconnect()
	p.mu.Lock()
	delete(p.open, db.scope)
	p.mu.Unlock()
	close(db.gone)
	return err
}

func (p *pool) release(db *database) {
	p.leave(db)
	<-p.slots
}

func (p *pool) leave(db *database) {
	p.mu.Lock()
	defer p.mu.Unlock()
	db.refs--
	if db.refs > 0 {
		return
	}
	select {
	case <-db.ready:
		if db.err != nil && !db.closing { // it never opened: the next caller tries anew
			delete(p.open, db.scope)
		}
	default:
	}
	if db.closing {
		close(db.drained)
	}
}

// remove closes the databases that match and calls f while none of tenant's can be opened. It waits
// for the calls under way, each of which has a deadline.
func (p *pool) remove(tenant string, match func(store.Scope) bool, f func() error) error {
	lock := p.tenant(tenant)
	lock.Lock()
	defer lock.Unlock()
	err := p.shutAll(func(sc store.Scope) bool { return sc.Tenant == tenant && match(sc) })
	if err != nil {
		return err
	}
	return f()
}

func (p *pool) shutAll(match func(store.Scope) bool) error {
	var mine, others []*database
	p.mu.Lock()
	for sc, db := range p.open {
		switch {
		case !match(sc):
		case db.closing:
			others = append(others, db)
		default:
			db.closing = true
			if db.refs == 0 {
				close(db.drained)
			}
			mine = append(mine, db)
		}
	}
	p.mu.Unlock()
	var errs []error
	for _, db := range mine {
		<-db.drained
		errs = append(errs, p.shut(db))
	}
	for _, db := range others {
		<-db.gone
	}
	return errors.Join(errs...)
}

func (p *pool) close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return p.shutAll(func(store.Scope) bool { return true })
}
