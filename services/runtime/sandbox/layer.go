package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/diskimage"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// The writable layer of a sandbox with a writable root: a disk of its own, as large as DiskBytes says, in a sparse
// file. Owners on it are the ids inside, 0 to 65,535, so that a layer can go to another sandbox as it is.
//
//	<layers>/<id>.img     the disk
//	<run>/sb/<id>/disk    it is mounted there: upper, and work for overlayfs itself
//	<run>/sb/<id>/root    the root file system: upper over the layers of the image

// imageSuffix of a disk.
const imageSuffix = ".img"

// Layer is the directory on the node with what the sandbox has changed of its root, in the form of overlayfs:
// a character device 0:0 hides a name of the image, a directory with the attribute trusted.overlay.opaque=y all of
// the image's directory. It is complete once the sandbox is paused or stopped. False: its root is read-only.
func (s *Sandbox) Layer() (dir string, ok bool) {
	if !s.spec.Isolation.WritableRoot {
		return "", false
	}
	return s.path("disk", "upper"), true
}

// CopyLayer writes the sandbox's writable layer to path, which must not exist, as a disk for Spec.From. Writes of
// the sandbox wait meanwhile; nothing of it changes. It costs about as much as the changed files have bytes.
func (s *Sandbox) CopyLayer(path string) error {
	if !s.spec.Isolation.WritableRoot {
		return fault.New(fault.Invalid, "sandbox %s has no writable root; make it from a template with writable_root", s.spec.ID)
	}
	s.destroy.Lock() // not while it is being taken away
	defer s.destroy.Unlock()
	err := diskimage.Frozen(s.path("disk"), func() error { return diskimage.Copy(s.node.layerFile(s.id), path) })
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrExist) {
		err = errors.Join(err, ignoreMissing(os.Remove(path)))
	}
	if errors.Is(err, unix.ENOSPC) {
		return fault.Wrap(err, fault.Exhausted, "the node's disk is full; free some space on it")
	}
	return fmt.Errorf("copy the writable layer of sandbox %s: %w", s.spec.ID, err)
}

// thawDisk lets the disk of sandbox id go on, should a process have been killed while it copied it.
func (n *Node) thawDisk(id string) error { return diskimage.Thaw(filepath.Join(n.dir(id), "disk")) }

// layerFile is the disk of sandbox id.
func (n *Node) layerFile(id string) string { return filepath.Join(n.layers, id+imageSuffix) }

// openLayers makes the directory of the disks. That disks can't be made is said when one is wanted.
func (n *Node) openLayers() error {
	n.layers = filepath.Join(n.cfg.DataDir, "layers")
	if err := os.MkdirAll(n.layers, 0o700); err != nil {
		return err
	}
	n.disks, n.noDisks = diskimage.Open(filepath.Join(n.layers, "empty"))
	return nil
}

// layerFiles lists the sandboxes of which a disk is there.
func (n *Node) layerFiles() ([]string, error) {
	entries, err := os.ReadDir(n.layers)
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), imageSuffix); ok && schemas.CheckID("sandbox", id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// removeLayer gives the disk's room back. Its mounts are gone; where the kernel still holds them, it goes with them.
func (n *Node) removeLayer(id string) error { return ignoreMissing(os.Remove(n.layerFile(id))) }

// makeLayer makes the sandbox's disk, empty or as spec.From has it, and mounts it.
func (n *Node) makeLayer(ctx context.Context, s *Sandbox) error {
	if n.disks == nil {
		return fault.Wrap(n.noDisks, fault.Unavailable, "this node can't make a writable root: %v", n.noDisks)
	}
	file, dir := n.layerFile(s.id), s.path("disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	made, err := n.layerFrom(ctx, s.spec, file)
	if err != nil {
		return err
	}
	if err := diskimage.Mount(file, dir); err != nil {
		return fault.Wrap(err, fault.Unavailable, "this node can't mount the disk of a writable root")
	}
	if err := os.Chmod(dir, 0o700); err != nil { // of the disk's own root: nobody else on this machine looks in
		return err
	}
	// What overlayfs kept for itself in another sandbox means nothing here.
	if err := os.RemoveAll(filepath.Join(dir, "work")); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "work"), 0o700); err != nil {
		return err
	}
	upper := filepath.Join(dir, "upper")
	if made {
		st, err := os.Lstat(upper)
		if err == nil && !st.IsDir() {
			err = unix.ENOTDIR
		}
		return fault.Wrap(err, fault.Invalid, "%s is not the disk of a writable layer", s.spec.From)
	}
	if err := os.Mkdir(upper, 0o755); err != nil {
		return err
	}
	if s.spec.From == "" {
		return nil
	}
	return copyTree(ctx, s.spec.From, upper)
}

// layerFrom makes the file. filled says that it holds a layer already.
func (n *Node) layerFrom(ctx context.Context, spec Spec, file string) (filled bool, err error) {
	if spec.From != "" {
		st, err := os.Stat(spec.From)
		if err != nil {
			return false, fault.Wrap(err, fault.NotFound, "the writable layer to start with is gone")
		}
		if st.Mode().IsRegular() {
			if most := diskimage.Size(spec.Resources.DiskBytes); st.Size() > most {
				return false, fault.New(fault.Exhausted, "the writable layer to start with has a disk of %d bytes; the sandbox has %d: raise disk_bytes", st.Size(), most)
			}
			if spec.Take && os.Rename(spec.From, file) == nil {
				return true, nil
			}
			return true, diskimage.Copy(spec.From, file)
		}
	}
	return false, n.disks.Create(ctx, file, spec.Resources.DiskBytes)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
