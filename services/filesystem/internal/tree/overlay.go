package tree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/diskimage"
	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/dirs"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// ErrNoOverlay says that this node has no overlay of that sandbox.
var ErrNoOverlay = errors.New("no overlay of this sandbox")

// Overlay is what overlay.json says of one sandbox's view.
type Overlay struct {
	Node      string    `json:"node"` // for which it was made
	Tenant    string    `json:"tenant"`
	Workspace string    `json:"workspace"`
	Owner     string    `json:"owner"`
	Attempt   int       `json:"attempt"`
	Sandbox   string    `json:"sandbox"`
	Base      string    `json:"base"`     // snapshot
	Manifest  string    `json:"manifest"` // of the base
	ReadOnly  bool      `json:"readonly,omitempty"`
	DiskBytes int64     `json:"disk_bytes"`
	IDBase    uint32    `json:"id_base,omitempty"` // host id to which container id 0 maps; 0: it is not mounted here
	Layers    []string  `json:"layers"`            // ids, the uppermost first
	From      string    `json:"from,omitempty"`    // whose changes it began with
	At        time.Time `json:"at"`
}

// Trees is the part of the data directory that holds layers and overlays. One process uses it.
type Trees struct {
	data string // absolute
	vol  *diskimage.Images
	maps idmaps

	mu       sync.Mutex
	spaces   map[string]*layers // by tenant/workspace
	dropping sync.WaitGroup     // of Drop
	spares   spares
}

// Open takes data, an absolute path without symlinks, into use. Overlays of an earlier process stay as they are.
func Open(data string) (*Trees, error) {
	if longest := (len(data) + 80) * (maxChain + 3); longest > 4000 {
		return nil, fmt.Errorf("data directory %s is too long a path: overlayfs takes 4096 bytes for all layers", data)
	}
	if err := os.MkdirAll(filepath.Join(data, "overlays"), 0o711); err != nil {
		return nil, err
	}
	t := &Trees{data: data, spaces: map[string]*layers{}, spares: spares{stop: make(chan struct{})}}
	if err := t.forgetAfterBoot(bootID); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(data, "layers"), 0o711); err != nil {
		return nil, err
	}
	var err error
	if t.vol, err = diskimage.Open(filepath.Join(data, "volumes")); err != nil {
		return nil, err
	}
	return t, errors.Join(Thaw(data), t.clean())
}

// What ends the name of an overlay's directory that is being made, and of one that is being removed.
const (
	unfinished = ".tmp"
	dropped    = ".gone"
	waiting    = ".spare" // has a whole disk, and waits for the overlay that it is for
)

// clean removes what an earlier process had only begun, or only begun to remove.
func (t *Trees) clean() error {
	entries, err := os.ReadDir(filepath.Join(t.data, "overlays"))
	for _, e := range entries {
		dir := filepath.Join(t.data, "overlays", e.Name())
		switch filepath.Ext(e.Name()) {
		case unfinished:
			err = errors.Join(err, os.RemoveAll(dir))
		case dropped, waiting:
			err = errors.Join(err, removeDir(dir))
		}
	}
	return err
}

// Close waits for what is being removed, and releases what this process holds. Overlays stay mounted.
func (t *Trees) Close() {
	t.spares.close()
	t.dropping.Wait()
	t.maps.close()
}

func (t *Trees) dir(sandbox string) string { return filepath.Join(t.data, "overlays", sandbox) }

// Path is what the runtime mounts into the sandbox.
func (t *Trees) Path(sandbox string) string { return filepath.Join(t.dir(sandbox), "files") }

// Space is where a workspace's trees come from.
type Space struct {
	Tenant, Workspace string
	Tree              *manifest.Tree
	Source            manifest.Source
}

func (t *Trees) layers(s Space) (*layers, error) {
	key := s.Tenant + "/" + s.Workspace
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.spaces[key]; l != nil {
		return l, nil
	}
	l, err := openLayers(filepath.Join(t.data, "layers", s.Tenant, s.Workspace), s.Tree, s.Source)
	if err == nil {
		t.spaces[key] = l
	}
	return l, err
}

// Prepare makes and mounts an overlay over the manifest root. Asked again for one that is ready it changes nothing. A half-made
// one is made afresh: nobody has seen it.
func (t *Trees) Prepare(ctx context.Context, s Space, o Overlay, root chunks.Hash) (Overlay, error) {
	if err := schemas.CheckID("sandbox", o.Sandbox); err != nil {
		return o, err
	}
	if have, err := t.Get(o.Sandbox); err == nil {
		if whole, err := t.whole(have); err != nil || whole {
			return have, err
		}
	}
	if err := t.Remove(o.Sandbox); err != nil {
		return o, err
	}
	l, err := t.layers(s)
	if err != nil {
		return o, err
	}
	if o.Layers, err = l.ensure(root); err != nil {
		return o, err
	}
	o.Manifest = root.String()
	if err := t.build(ctx, l, &o); err != nil {
		return o, errors.Join(err, t.Remove(o.Sandbox))
	}
	return o, nil
}

// whole reports whether an overlay is complete. It is not if its making was cut off, nor after the machine was restarted.
func (t *Trees) whole(o Overlay) (bool, error) {
	if o.IDBase > 0 { // mounted last
		at, err := mounts.Below(t.Path(o.Sandbox))
		if err != nil || len(at) == 0 {
			return false, err
		}
	}
	if o.ReadOnly {
		return true, nil
	}
	d, err := t.Upper(o.Sandbox)
	if errors.Is(err, ErrNoOverlay) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = d.Close()
	}
	return err == nil, err
}

// Parts are what an overlay is mounted of, as absolute paths: the lower layers, the uppermost first, and where it is
// not read-only, the upper and the work directory.
func (t *Trees) Parts(o Overlay) (lower []string, upper, work string) {
	for _, id := range o.Layers {
		lower = append(lower, filepath.Join(t.data, "layers", o.Tenant, o.Workspace, id, "root"))
	}
	if !o.ReadOnly {
		upper, work = filepath.Join(t.dir(o.Sandbox), "disk", "upper"), filepath.Join(t.dir(o.Sandbox), "disk", "work")
	}
	return lower, upper, work
}

// Get reads what is known of a sandbox's overlay.
func (t *Trees) Get(sandbox string) (Overlay, error) {
	var o Overlay
	if err := schemas.CheckID("sandbox", sandbox); err != nil {
		return o, err
	}
	b, err := os.ReadFile(filepath.Join(t.dir(sandbox), "overlay.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return o, ErrNoOverlay
	}
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(b, &o); err != nil || o.Sandbox != sandbox {
		return o, fmt.Errorf("%s/overlay.json can't be read: %w", t.dir(sandbox), err)
	}
	return o, nil
}

// List gives the sandboxes that have an overlay here, also half-made and half-removed ones.
func (t *Trees) List() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(t.data, "overlays"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if schemas.CheckID("sandbox", e.Name()) == nil {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Upper opens what the sandbox changed.
func (t *Trees) Upper(sandbox string) (*dirs.Dir, error) {
	if _, err := t.Get(sandbox); err != nil {
		return nil, err
	}
	disk := filepath.Join(t.dir(sandbox), "disk")
	at, err := mounts.Below(disk)
	if err != nil {
		return nil, err
	}
	if len(at) == 0 {
		return nil, fmt.Errorf("%w: its disk is not mounted", ErrNoOverlay)
	}
	d, err := dirs.Open(disk)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Sub("upper")
}

// Remove unmounts an overlay and removes what it holds, in whatever state it is; none is no error. Only known names are removed, each by itself,
// so that nothing below a mount could be hit.
func (t *Trees) Remove(sandbox string) error {
	if err := schemas.CheckID("sandbox", sandbox); err != nil {
		return err
	}
	return removeDir(t.dir(sandbox))
}

// Drop is Remove for an overlay that nobody needs any more: it is gone at once, and its disk, which takes the kernel
// some milliseconds, is given back behind the caller's back. A process that dies in between leaves the rest to the next Open.
func (t *Trees) Drop(sandbox string) error {
	if err := schemas.CheckID("sandbox", sandbox); err != nil {
		return err
	}
	gone := t.dir(sandbox) + dropped
	err := os.Rename(t.dir(sandbox), gone)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil: // an earlier one of that name is still being removed
		return t.Remove(sandbox)
	}
	t.dropping.Go(func() {
		if err := removeDir(gone); err != nil {
			slog.Error("the rest of an overlay can't be removed now; the next start does it", "sandbox", sandbox, "error", err)
		}
	})
	return nil
}

// removeDir removes an overlay's directory; none is no error.
func removeDir(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := unmountBelow(dir); err != nil {
		return err
	}
	failpoint.Hit(midRemove)
	for _, name := range []string{"files", "lower", "upper", "disk", "disk.img", "overlay.json", ""} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Prune removes layers of the workspace that no overlay and no next one needs.
func (t *Trees) Prune(s Space) error {
	l, err := t.layers(s)
	if err != nil {
		return err
	}
	sandboxes, err := t.List()
	if err != nil {
		return err
	}
	var keep []string
	for _, id := range sandboxes {
		o, err := t.Get(id)
		if errors.Is(err, ErrNoOverlay) {
			continue
		}
		if err != nil {
			return err
		}
		if o.Tenant == s.Tenant && o.Workspace == s.Workspace && len(o.Layers) > 0 {
			keep = append(keep, o.Layers[0])
		}
	}
	return l.prune(keep)
}

// Forget removes a workspace's layers, or all of a tenant's if workspace is empty. Its overlays must be gone.
func (t *Trees) Forget(tenant, workspace string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.spaces {
		if key == tenant+"/"+workspace || workspace == "" && strings.HasPrefix(key, tenant+"/") {
			delete(t.spaces, key)
		}
	}
	return os.RemoveAll(filepath.Join(t.data, "layers", tenant, workspace))
}

func unixNano(ns int64) time.Time { return time.Unix(0, ns) }
