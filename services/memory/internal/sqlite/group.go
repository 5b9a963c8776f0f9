package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// groupSize is how many writes one transaction takes at most.
const groupSize = 64

// group joins writes that wait for the disk at the same time into one transaction, so that they wait once. Each
// is whole or not at all for itself: if one fails, all are rolled back and run again, each from a
// savepoint of its own. (Savepoints cost more than the writes, because the full-text index is flushed at each.)
type group struct {
	turn chan struct{} // held by the caller who runs a transaction; capacity 1

	mu      sync.Mutex
	waiting []*write
}

// write is one caller's.
type write struct {
	f    func(context.Context, *sql.Tx) error
	done chan struct{} // closed when err is set
	err  error
}

// do runs f in a transaction, perhaps together with others. When it returns nil, f's effect is on disk. f must not
// use the caller's context, because a statement that is interrupted ends the transaction of all; and f may be run
// twice.
func (g *group) do(ctx context.Context, db *sql.DB, f func(context.Context, *sql.Tx) error) error {
	w := &write{f: f, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	g.mu.Unlock()
	for {
		select {
		case <-w.done:
			return w.err
		case g.turn <- struct{}{}:
			if batch := g.take(); len(batch) > 0 {
				finish(batch, run(ctx, db, batch))
			}
			<-g.turn
		case <-ctx.Done():
			if g.withdraw(w) {
				return ctx.Err()
			}
			<-w.done // it is being written
			return w.err
		}
	}
}

func (g *group) take() []*write {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), groupSize)
	batch := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return batch
}

// withdraw reports whether w was still waiting, and is not any more.
func (g *group) withdraw(w *write) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, o := range g.waiting {
		if o == w {
			g.waiting = append(g.waiting[:i:i], g.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// finish tells the writers. err is that of the transaction: it is everybody's who had none of their own.
func finish(batch []*write, err error) {
	for _, w := range batch {
		if w.err == nil {
			w.err = err
		}
		close(w.done)
	}
}

// run runs a batch in one transaction. The error it returns is that of the whole.
func run(ctx context.Context, db *sql.DB, batch []*write) error {
	// The caller who runs it may go away; the others wait for it all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
	defer cancel()
	failed, err := attempt(ctx, db, batch, false)
	if err == nil && failed && len(batch) > 1 {
		_, err = attempt(ctx, db, batch, true)
	}
	return err
}

// attempt runs a batch in one transaction. Without savepoints it stops at the first write that fails, and nothing is
// committed.
func attempt(ctx context.Context, db *sql.DB, batch []*write, savepoints bool) (failed bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	for _, w := range batch {
		if savepoints {
			err = separately(ctx, tx, w)
		} else if w.err = guard(ctx, tx, w); w.err != nil {
			return true, nil
		}
		if err != nil {
			return true, err
		}
	}
	return false, tx.Commit()
}

// separately runs w from a savepoint. The error it returns ends the transaction.
func separately(ctx context.Context, tx *sql.Tx, w *write) error {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT one`); err != nil {
		return err
	}
	if w.err = guard(ctx, tx, w); w.err != nil {
		if _, err := tx.ExecContext(ctx, `ROLLBACK TO one`); err != nil {
			return errors.Join(w.err, err) // the failure took the transaction with it: the disk is full, or gone
		}
	}
	_, err := tx.ExecContext(ctx, `RELEASE one`)
	return err
}

// guard turns a panic into an error: it is one writer's, and the others must not wait for ever.
func guard(ctx context.Context, tx *sql.Tx, w *write) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a write: %v", p)
		}
	}()
	return w.f(ctx, tx)
}
