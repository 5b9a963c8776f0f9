package tree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/diskimage"
	"github.com/weftmesh/weft/services/filesystem/internal/dirs"
)

// Points at which a test ends the process.
var (
	afterRecord = failpoint.Register("filesystem.overlay.after-record")
	afterVolume = failpoint.Register("filesystem.overlay.after-volume")
	afterMount  = failpoint.Register("filesystem.overlay.after-mount")
	midRemove   = failpoint.Register("filesystem.overlay.mid-remove")
)

// build makes an overlay whose layers are there.
func (t *Trees) build(ctx context.Context, l *layers, o *Overlay) error {
	spare := ""
	if !o.ReadOnly && o.From == "" && o.IDBase == 0 {
		defer t.refill(o.DiskBytes)
		spare = t.spares.take(o.DiskBytes)
	}
	if err := t.begin(*o, spare); err != nil {
		return err
	}
	failpoint.Hit(afterRecord)
	if !o.ReadOnly && spare == "" {
		if err := t.volume(ctx, t.dir(o.Sandbox), *o); err != nil {
			return err
		}
	}
	failpoint.Hit(afterVolume)
	if o.IDBase > 0 {
		if err := t.maps.withMap(o.IDBase, func(ns int) error { return t.mount(ns, l.dir, *o) }); err != nil {
			return err
		}
	}
	failpoint.Hit(afterMount)
	return nil
}

// begin makes the overlay's directory with overlay.json in it, at once: a directory without the file is one that is being removed. A
// spare directory that is given becomes it, with its disk.
func (t *Trees) begin(o Overlay, spare string) error {
	tmp := spare
	if spare == "" {
		tmp = t.dir(o.Sandbox) + unfinished
		if err := os.RemoveAll(tmp); err != nil { // nothing is ever mounted below it
			return err
		}
		need := []string{""}
		if !o.ReadOnly {
			need = append(need, "disk")
		}
		if o.IDBase > 0 {
			need = append(need, "files", "lower", "upper")
		}
		for _, d := range need {
			if err := os.Mkdir(filepath.Join(tmp, d), 0o711); err != nil {
				return err
			}
		}
	}
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "overlay.json"), b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, t.dir(o.Sandbox))
}

// volume makes the writable part: upper holds what the sandbox changes, work is overlayfs's own.
func (t *Trees) volume(ctx context.Context, dir string, o Overlay) error {
	image := filepath.Join(dir, "disk.img")
	if o.From != "" {
		return t.copyVolume(o, image)
	}
	if err := t.vol.Create(ctx, image, o.DiskBytes); err != nil {
		return err
	}
	if err := diskimage.Mount(image, filepath.Join(dir, "disk")); err != nil {
		return err
	}
	d, err := dirs.Open(filepath.Join(dir, "disk"))
	if err != nil {
		return err
	}
	defer d.Close()
	for _, name := range []string{"work", "upper" + unfinished} {
		sub, err := d.Mkdir(name)
		if err != nil {
			return err
		}
		if name != "work" {
			err = sub.MetaSelf(0o755, Owner, Owner)
		}
		if err := errors.Join(err, sub.Close()); err != nil {
			return err
		}
	}
	return d.Rename("upper"+unfinished, "upper") // says that the volume is whole
}

// mount puts the overlay together. The idmapped mounts of its parts are gone when it returns: overlayfs keeps clones of its own.
func (t *Trees) mount(ns int, layersDir string, o Overlay) (err error) {
	dir := t.dir(o.Sandbox)
	files, lower, upper := filepath.Join(dir, "files"), filepath.Join(dir, "lower"), filepath.Join(dir, "upper")
	if o.ReadOnly && len(o.Layers) == 1 { // overlayfs wants two layers or an upper one
		return mountMapped(ns, filepath.Join(layersDir, o.Layers[0], "root"), files, true)
	}
	if err := mountMapped(ns, layersDir, lower, true); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Unmount(lower, unix.MNT_DETACH)) }()
	var parts []string
	for _, id := range o.Layers {
		parts = append(parts, filepath.Join(lower, id, "root"))
	}
	opts := "lowerdir=" + strings.Join(parts, ":") + ",index=off,metacopy=off,xino=off"
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME)
	if o.ReadOnly {
		opts += ",redirect_dir=nofollow"
		flags |= unix.MS_RDONLY
	} else {
		if err := mountMapped(ns, filepath.Join(dir, "disk"), upper, false); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unix.Unmount(upper, unix.MNT_DETACH)) }()
		// volatile: nobody's fsync in the sandbox has to wait for the disk, because nothing of an overlay outlives the machine.
		// redirect_dir: renaming a directory of the base works, as it would on any disk.
		opts += ",redirect_dir=on,volatile,upperdir=" + filepath.Join(upper, "upper") + ",workdir=" + filepath.Join(upper, "work")
	}
	if err := unix.Mount("weft-"+o.Sandbox, files, "overlay", flags, opts); err != nil {
		return fmt.Errorf("mount overlay (it takes Linux 5.19 or newer): %w", err)
	}
	return nil
}
