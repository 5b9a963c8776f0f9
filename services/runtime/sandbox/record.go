package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// record says whose a warm sandbox is. It is linked into the body's directory as a whole and exclusively, and
// never changed: of all who try at once, in whatever process, one succeeds, and nobody after them. One
// that dies right after it has claimed the body for good; it is found and removed by its id like any other.
type record struct {
	// Spec of whoever claimed it; nil: nobody did, and nobody will, since it is being destroyed.
	Spec *Spec `json:"spec,omitempty"`
}

const recordFile = "bound.json"

var errTaken = errors.New("the sandbox was claimed before")

// claim links the record of a body. errTaken: somebody else's is there.
func (n *Node) claim(body string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	dir := n.dir(body)
	if _, err := os.Lstat(filepath.Join(dir, recordFile)); err == nil {
		return errTaken // most of those who come too late need no more than this
	}
	tmp := filepath.Join(dir, ".claim-"+schemas.NewID())
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("claim sandbox %s: %w", body, err)
	}
	err = errors.Join(os.Link(tmp, filepath.Join(dir, recordFile)), os.Remove(tmp))
	if errors.Is(err, fs.ErrExist) {
		return errTaken
	}
	return err
}

// claimed reads the record of a body; nil: it has none.
func (n *Node) claimed(body string) (*record, error) {
	b, err := os.ReadFile(filepath.Join(n.dir(body), recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("record of sandbox %s: %w", body, err)
	}
	return &r, nil
}

// named is the id by which a body is known: the one that it was claimed for, or its own.
func (n *Node) named(body string) string {
	if r, err := n.claimed(body); err == nil && r != nil && r.Spec != nil {
		return r.Spec.ID
	}
	return body
}

// bodyOf finds the body of the sandbox called id, whether or not this process knows it. One of which nothing
// is left has its own id for a body.
func (n *Node) bodyOf(id string) (string, error) {
	if err := schemas.CheckID("sandbox", id); err != nil {
		return "", fault.New(fault.Invalid, "%v", err) // never build paths from anything else
	}
	if _, err := os.Lstat(n.dir(id)); err == nil {
		return id, nil
	}
	dirs, err := names(n.base())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, body := range dirs {
		if n.named(body) == id {
			return body, nil
		}
	}
	return id, nil
}
