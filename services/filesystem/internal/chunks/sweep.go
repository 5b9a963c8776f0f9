package chunks

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// smallPack is the size in bytes below which packs are brought together.
const smallPack = 8 << 20

// Swept says what Sweep did.
type Swept struct {
	Kept, Removed int // chunks
	Packs         int // that there are now
	Bytes         int64
}

// old is a pack that is to be replaced, and what is still needed of it.
type old struct {
	n    uint64
	keep []packEntry
	info packInfo
}

// Sweep removes the chunks that live does not want and that are older than grace. A chunk that a batch has just relied on counts as
// new; so grace must be longer than any operation between its first chunk and its record. Small packs, and those of which less than half
// is needed, are copied together.
func (s *Store) Sweep(live func(Hash) bool, grace time.Duration, now time.Time) (Swept, error) {
	s.sweep.Lock()
	defer s.sweep.Unlock()
	var out Swept
	worn := s.worn(live, now, now.Add(-grace))
	for group := range groups(worn) {
		freed, err := s.replace(group, live, now.Add(-grace), &out)
		if err != nil {
			return out, fmt.Errorf("chunk store: %w", err)
		}
		out.Bytes += freed
	}
	s.mu.RLock()
	out.Packs, out.Kept = len(s.packs), len(s.index)
	s.mu.RUnlock()
	return out, nil
}

// settleTime is how old a small pack is before it is brought together with others. What of it nobody needs goes only after the grace
// period.
const settleTime = time.Minute

// worn chooses the packs to replace.
func (s *Store) worn(live func(Hash) bool, now, before time.Time) []old {
	s.mu.RLock()
	defer s.mu.RUnlock()
	by := map[uint64]*old{}
	need := map[uint64]int64{}
	for n, info := range s.packs {
		if info.made.Before(before) || info.size < smallPack && info.made.Before(now.Add(-settleTime)) {
			by[n] = &old{n: n, info: info}
		}
	}
	for h, p := range s.index {
		o := by[p.pack]
		if o == nil {
			continue
		}
		if !o.info.made.Before(before) || p.touched > before.Unix() || live(h) {
			o.keep = append(o.keep, packEntry{h, p.offset, p.size, p.codec})
			need[p.pack] += int64(p.size)
		}
	}
	var worn []old
	small := 0
	for n, o := range by {
		if o.info.size < smallPack && len(o.keep) > 0 {
			small++
		}
		if o.info.size < smallPack || need[n] < o.info.size/2 {
			worn = append(worn, *o)
		}
	}
	if small == 1 { // alone it would only be copied to itself; unless something of it can go
		worn = slices.DeleteFunc(worn, func(o old) bool { return len(o.keep) > 0 && need[o.n] >= o.info.size/2 })
	}
	slices.SortFunc(worn, func(a, b old) int { return cmp.Compare(a.n, b.n) })
	return worn
}

// groups cuts the list so that what is needed of each group fits into one pack.
func groups(worn []old) func(yield func([]old) bool) {
	return func(yield func([]old) bool) {
		start, size := 0, int64(0)
		for i, o := range worn {
			n := int64(0)
			for _, e := range o.keep {
				n += int64(e.size)
			}
			if size+n > maxPack && i > start {
				if !yield(worn[start:i]) {
					return
				}
				start, size = i, 0
			}
			size += n
		}
		if start < len(worn) {
			yield(worn[start:])
		}
	}
}

// replace writes what is needed of a group into a new pack, which is durable before the first old one goes.
func (s *Store) replace(group []old, live func(Hash) bool, before time.Time, out *Swept) (int64, error) {
	n := s.number()
	made, fresh, size, err := s.copyTogether(n, group)
	if err != nil {
		return 0, err
	}
	freed := -size
	moved := map[Hash]packEntry{}
	for _, e := range fresh {
		moved[e.hash] = e
	}
	s.mu.Lock()
	// A batch may have relied on a chunk since it was left out; then its pack has to stay for now.
	gone := map[uint64]bool{}
	for _, o := range group {
		gone[o.n] = true
	}
	for h, p := range s.index {
		if _, ok := moved[h]; gone[p.pack] && !ok && (p.touched > before.Unix()) {
			delete(gone, p.pack)
		}
	}
	if len(fresh) > 0 {
		s.packs[n] = packInfo{size, made}
	}
	for h, p := range s.index {
		if e, ok := moved[h]; ok {
			s.index[h] = place{pack: n, offset: e.offset, size: e.size, codec: e.codec, touched: p.touched}
		} else if gone[p.pack] {
			delete(s.index, h)
			out.Removed++
		}
	}
	for g := range gone {
		freed += s.packs[g].size
		delete(s.packs, g)
	}
	s.mu.Unlock()
	for g := range gone {
		s.open.forget(packName(g))
		err = errors.Join(err, s.root.Remove(packName(g)))
	}
	return freed, err
}

// copyTogether writes a pack of what is to be kept. It is as old as the youngest of the group, so that what
// nobody needs does not become young by being copied.
func (s *Store) copyTogether(n uint64, group []old) (made time.Time, entries []packEntry, size int64, err error) {
	name := incoming + "/" + strconv.FormatUint(n, 16)
	var w *packWriter
	for _, o := range group {
		if o.info.made.After(made) {
			made = o.info.made
		}
		slices.SortFunc(o.keep, func(a, b packEntry) int { return cmp.Compare(a.offset, b.offset) })
		for _, e := range o.keep {
			if w == nil {
				f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return made, nil, 0, err
				}
				defer f.Close()
				w = newPackWriter(f)
			}
			raw, err := s.open.read(packName(o.n), e.offset, e.size)
			if err == nil {
				_, err = w.add(e.hash, raw, e.codec)
			}
			if err != nil {
				return made, nil, 0, errors.Join(err, s.root.Remove(name))
			}
		}
	}
	if w == nil {
		return made, nil, 0, nil
	}
	err = w.finish()
	if err == nil {
		err = errors.Join(s.root.Chtimes(name, made, made), s.root.Rename(name, packName(n)))
	}
	if err == nil {
		err = s.syncPacks()
	}
	return made, w.entries, w.size, err
}
