package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/distribution/reference"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"

	"github.com/weftmesh/weft/pkg/fault"
)

// labelArchive is on the images that were imported, with the archive's path.
const labelArchive = "dev.weft/archive"

// Image is an unpacked root file system, ready to be the parent of a sandbox's snapshot.
type Image struct {
	Name   string              // of the record in containerd
	Parent string              // the snapshot that its layers make
	Config ocispec.ImageConfig // Env, WorkingDir
}

// imageFlight is one image being fetched; those who want the same one wait for it.
type imageFlight struct {
	cancel context.CancelFunc
	done   chan struct{}
	img    Image
	err    error
}

// Image makes sure that ref is on this node and unpacked. ref is the name of an archive in one of the
// image directories without ".tar", an archive's absolute path inside one of them, or a reference that
// is pulled once, if its registry is one of those that are allowed. An archive that was replaced is imported anew.
func (e *Engine) Image(ctx context.Context, ref string) (Image, error) {
	archive, err := e.archive(ref)
	if err != nil {
		return Image{}, err
	}
	key := archive.name
	switch {
	case isSnapshot(ref):
		key = ref
	case archive.path == "":
		named, err := reference.ParseDockerRef(ref)
		if err != nil {
			return Image{}, fault.New(fault.Invalid, "image %q is neither an archive of this node nor a reference", clip(ref))
		}
		if archiveName(ref) {
			return Image{}, fault.New(fault.Unavailable, "image %q is not on this node; put an OCI archive of that name into an image directory, or name the registry too, as in example.com/%s",
				clip(ref), clip(ref))
		}
		key = named.String()
	}
	e.mu.Lock()
	f := e.images[key]
	if f == nil {
		fetch, cancel := call(context.WithoutCancel(ctx), imageTimeout)
		f = &imageFlight{cancel: cancel, done: make(chan struct{})}
		e.images[key] = f
		e.flights.Go(func() { e.fly(fetch, f, key, archive) })
	}
	e.mu.Unlock()
	select {
	case <-f.done:
		return f.img, f.err
	case <-ctx.Done():
		return Image{}, fmt.Errorf("image %s: %w", clip(ref), ctx.Err())
	}
}

// fly fetches one image for all who wait. A failure is not remembered.
func (e *Engine) fly(ctx context.Context, f *imageFlight, key string, a archiveFile) {
	defer f.cancel()
	switch {
	case a.path != "":
		f.img, f.err = e.importArchive(ctx, a)
	case isSnapshot(key):
		f.img, f.err = e.snapshot(ctx, key)
	default:
		f.img, f.err = e.pull(ctx, key)
	}
	f.err = diskFull(f.err)
	if f.err != nil {
		e.mu.Lock()
		delete(e.images, key)
		e.mu.Unlock()
	}
	close(f.done)
}

// archiveFile is an OCI archive on this node; name changes when the file does.
type archiveFile struct{ path, name string }

// archiveName says whether ref can only be the name of an archive.
func archiveName(ref string) bool {
	return !strings.ContainsAny(ref, "/:@") && ref != "" && ref[0] != '.'
}

// archive finds the archive that ref names. The zero value means that ref names none.
func (e *Engine) archive(ref string) (archiveFile, error) {
	var candidates []string
	switch {
	case filepath.IsAbs(ref):
		inside := slices.ContainsFunc(e.cfg.ImageDirs, func(dir string) bool { return filepath.Dir(filepath.Clean(ref)) == filepath.Clean(dir) })
		if !inside {
			return archiveFile{}, fault.New(fault.Denied, "image %q lies in none of this node's image directories", clip(ref))
		}
		candidates = []string{filepath.Clean(ref)}
	case archiveName(ref):
		for _, dir := range e.cfg.ImageDirs {
			candidates = append(candidates, filepath.Join(dir, ref+".tar"))
		}
	}
	for _, path := range candidates {
		st, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !st.Mode().IsRegular() {
			return archiveFile{}, fault.Wrap(errors.Join(err, errors.New("not a regular file")), fault.Invalid, "image archive %q cannot be read", clip(ref))
		}
		ino := st.Sys().(*syscall.Stat_t).Ino
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d\x00%d", path, st.Size(), st.ModTime().UnixNano(), ino))
		return archiveFile{path, "weft.archive/" + hex.EncodeToString(sum[:16])}, nil
	}
	if filepath.IsAbs(ref) {
		return archiveFile{}, fault.New(fault.NotFound, "there is no image archive %q on this node", clip(ref))
	}
	return archiveFile{}, nil
}

// Archives lists the names of the archives in the image directories, sorted, each once.
func (e *Engine) Archives() []string {
	var names []string
	for _, dir := range e.cfg.ImageDirs {
		found, _ := filepath.Glob(filepath.Join(dir, "*.tar"))
		for _, f := range found {
			names = append(names, strings.TrimSuffix(filepath.Base(f), ".tar"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (e *Engine) importArchive(ctx context.Context, a archiveFile) (Image, error) {
	if img, err := e.client.GetImage(ctx, a.name); err == nil {
		return e.unpacked(ctx, img)
	} else if !errdefs.IsNotFound(err) {
		return Image{}, err
	}
	f, err := os.Open(a.path)
	if err != nil {
		return Image{}, fault.Wrap(err, fault.NotFound, "image archive %s cannot be read", filepath.Base(a.path))
	}
	defer f.Close()
	// Only the whole archive gets a record: names that it gives to itself could stand for a reference.
	imgs, err := e.client.Import(ctx, f, client.WithIndexName(a.name), client.WithImageLabels(map[string]string{labelArchive: a.path}),
		client.WithImageRefTranslator(func(string) string { return "" }))
	if err != nil {
		return Image{}, fault.Wrap(diskFull(err), codeOf(err), "image archive %s cannot be imported; is it an OCI archive?", filepath.Base(a.path))
	}
	for _, i := range imgs {
		if i.Name != a.name {
			if err := e.client.ImageService().Delete(ctx, i.Name); err != nil && !errdefs.IsNotFound(err) {
				return Image{}, err
			}
		}
	}
	img, err := e.client.GetImage(ctx, a.name)
	if err != nil {
		return Image{}, err
	}
	ready, err := e.unpacked(ctx, img)
	if err != nil {
		return Image{}, err
	}
	return ready, e.forget(ctx, a)
}

// forget removes the records of what the same archive held before. Sandboxes that use it keep its snapshots.
func (e *Engine) forget(ctx context.Context, a archiveFile) error {
	list, err := e.client.ImageService().List(ctx, fmt.Sprintf("labels.%q==%q", labelArchive, a.path))
	if err != nil {
		return err
	}
	for _, i := range list {
		if i.Name == a.name {
			continue
		}
		if err := e.client.ImageService().Delete(ctx, i.Name, images.SynchronousDelete()); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (e *Engine) pull(ctx context.Context, ref string) (Image, error) {
	img, err := e.client.GetImage(ctx, ref)
	if errdefs.IsNotFound(err) {
		if err := e.mayPull(ref); err != nil {
			return Image{}, err
		}
		img, err = e.client.Pull(quiet(ctx), ref, client.WithPullUnpack, client.WithPullSnapshotter(Snapshotter))
	}
	if err != nil {
		return Image{}, fault.Wrap(diskFull(err), codeOf(err),
			"image %s is not on this node and cannot be pulled; put an OCI archive into an image directory, or check the name and the network", clip(ref))
	}
	return e.unpacked(ctx, img)
}

// quiet keeps the client library from writing to our standard error; its errors are returned.
func quiet(ctx context.Context) context.Context {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return log.WithLogger(ctx, logrus.NewEntry(l))
}

// unpacked unpacks img if it is not yet, and gives what a sandbox needs of it.
func (e *Engine) unpacked(ctx context.Context, img client.Image) (Image, error) {
	ok, err := img.IsUnpacked(ctx, Snapshotter)
	if err == nil && !ok {
		err = img.Unpack(ctx, Snapshotter)
	}
	if err != nil {
		return Image{}, fault.Wrap(diskFull(err), codeOf(err), "image %s cannot be unpacked", img.Name())
	}
	diffs, err := img.RootFS(ctx)
	if err != nil {
		return Image{}, err
	}
	spec, err := img.Spec(ctx)
	if err != nil {
		return Image{}, err
	}
	return Image{Name: img.Name(), Parent: identity.ChainID(diffs).String(), Config: spec.Config}, nil
}

// codeOf is exhausted for a full disk, unavailable for all else that stands between us and an image.
func codeOf(err error) fault.Code {
	if isDiskFull(err) {
		return fault.Exhausted
	}
	return fault.Unavailable
}

// isDiskFull also knows the error by its text, which is all that comes over gRPC.
func isDiskFull(err error) bool {
	return err != nil && (errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), syscall.ENOSPC.Error()))
}

func diskFull(err error) error {
	if !isDiskFull(err) || fault.Is(err, fault.Exhausted) {
		return err
	}
	return fault.Wrap(err, fault.Exhausted, "the node's disk is full; free some space on it")
}

func clip(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}
