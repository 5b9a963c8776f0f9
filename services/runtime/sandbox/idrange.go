package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/weftmesh/weft/pkg/fault"
)

// Host ids for sandboxes: rangeCount ranges of rangeSize from rangeFirst on. They lie above what
// distributions give to people (/etc/subuid starts at 100000) and below 2³¹, where old programs fail.
const (
	rangeFirst = 1 << 30
	rangeSize  = 1 << 16
	rangeCount = 4096
	// crowd is how many sandboxes are so many that no more are made ahead: the rest is for those who need one.
	crowd = rangeCount * 3 / 4
)

// ranges gives every sandbox host ids of its own. Each taken range is a file named after its number
// that holds the sandbox's id: made exclusively, so that it is taken once whoever else tries.
type ranges struct {
	dir  string
	mu   sync.Mutex
	next int // where to look first: a range given back is not used again at once
}

// idRange is one of them.
type idRange int

// first is the host's id of id 0 inside.
func (r idRange) first() uint32 { return rangeFirst + uint32(r)*rangeSize }

// mapping of all ids inside to the range.
func (r idRange) mapping() []specs.LinuxIDMapping {
	return []specs.LinuxIDMapping{{ContainerID: 0, HostID: r.first(), Size: rangeSize}}
}

func openRanges(dir string) (*ranges, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &ranges{dir: dir}, nil
}

// take gives a free range to the sandbox id.
func (a *ranges) take(id string) (idRange, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// Written first and linked then: a range is never taken by nobody, whenever we die.
	name := filepath.Join(a.dir, "."+id)
	if err := os.WriteFile(name, []byte(id), 0o600); err != nil {
		return 0, err
	}
	defer os.Remove(name)
	for i := range rangeCount {
		n := (a.next + i) % rangeCount
		err := os.Link(name, a.path(idRange(n)))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		a.next = (n + 1) % rangeCount
		return idRange(n), nil
	}
	return 0, fault.New(fault.Exhausted, "all %d id ranges of this node are taken; end some sandboxes", rangeCount)
}

// release gives back every range of the sandbox id.
func (a *ranges) release(id string) error {
	taken, err := a.taken()
	if err != nil {
		return err
	}
	var errs []error
	for r, owner := range taken {
		if owner == id {
			errs = append(errs, os.Remove(a.path(r)))
		}
	}
	return errors.Join(errs...)
}

// taken lists who holds what.
func (a *ranges) taken() (map[idRange]string, error) {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return nil, err
	}
	held := map[idRange]string{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil || n < 0 || n >= rangeCount {
			continue
		}
		b, err := os.ReadFile(filepath.Join(a.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("id range %d: %w", n, err)
		}
		held[idRange(n)] = strings.TrimSpace(string(b))
	}
	return held, nil
}

func (a *ranges) path(r idRange) string { return filepath.Join(a.dir, strconv.Itoa(int(r))) }
