package sandbox

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/diskimage"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
)

// How OCI's layers say that a name of the layers below is gone, or that all in a directory is.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// checkImage refuses images that another tenant's snapshots made.
func (s Spec) checkImage() error {
	if rest, ok := strings.CutPrefix(s.Image, workspace.SnapshotPrefix); ok && !strings.HasPrefix(rest, s.Tenant+"/") {
		return fault.New(fault.Denied, "image %.200q is a snapshot of another tenant", s.Image)
	}
	return nil
}

// Snapshot makes the image name of the sandbox's own and of what the sandbox has changed of its root. Nothing in it may run
// meanwhile.
func (s *Sandbox) Snapshot(ctx context.Context, name string) (containerd.Snapshot, error) {
	if !s.spec.Isolation.WritableRoot {
		return containerd.Snapshot{}, fault.New(fault.Invalid, "sandbox %s has no writable root; make it from a template with writable_root", s.spec.ID)
	}
	image, err := s.node.engine.Image(ctx, s.spec.Image)
	if err != nil {
		return containerd.Snapshot{}, err
	}
	return s.node.engine.AddLayer(ctx, image, name, func(w io.Writer) error { return s.exportLayer(ctx, w) })
}

// Snapshots lists the images that snapshots made on this node.
func (n *Node) Snapshots(ctx context.Context) ([]containerd.Snapshot, error) {
	return n.engine.SnapshotImages(ctx)
}

// RemoveSnapshot removes one of them.
func (n *Node) RemoveSnapshot(ctx context.Context, name string) error {
	return n.engine.RemoveSnapshot(ctx, name)
}

// exportLayer writes the writable layer as a tar in OCI's form, in the order of names. Owners are the ids inside. Extended
// attributes are those of user.*: file capabilities are of the sandbox's own ids and are not passed on. What lies in /tmp, and
// sockets and devices, are not in it.
func (s *Sandbox) exportLayer(ctx context.Context, w io.Writer) error {
	dir, ok := s.Layer()
	if !ok {
		return errors.New("no writable layer")
	}
	fd, err := openDir(unix.AT_FDCWD, dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	most := s.mostExported()
	x := &export{ctx: ctx, tar: tar.NewWriter(&bounded{w, most}), most: most, links: map[uint64]string{}}
	if err := x.dir(fd, "", 0); err != nil {
		return fmt.Errorf("export of a writable layer: %w", err)
	}
	return x.tar.Close()
}

// mostExported is how many bytes a layer has that is packed. A disk that is full of the smallest files has less: a header for
// each of its inodes. What has more are files with holes, of which a small disk holds terabytes, or ten thousands of names with
// paths of ten thousands of bytes.
func (s *Sandbox) mostExported() int64 {
	size := diskimage.Size(s.spec.Resources.DiskBytes)
	return size + size/2
}

// bounded takes so many bytes and no more.
type bounded struct {
	w    io.Writer
	room int64
}

// Write refuses what goes beyond.
func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.room {
		return 0, errLarge
	}
	n, err := b.w.Write(p)
	b.room -= int64(n)
	return n, err
}

var errLarge = fault.New(fault.Exhausted, "what the sandbox has changed is larger, packed as an image, than its disk: "+
	"remove its sparse files, which are packed with their holes, and its deepest directories")

type export struct {
	ctx   context.Context
	tar   *tar.Writer
	most  int64             // bytes
	links map[uint64]string // inodes with several names → the first
}

// dir writes what is in an open directory, whose name ends with a slash unless it is the root.
func (x *export) dir(fd int, path string, depth int) error {
	if depth > maxTreeDepth {
		return fault.New(fault.Invalid, "the writable layer nests deeper than %d directories", maxTreeDepth)
	}
	names, err := namesIn(fd)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		if path == "" && name == ".weft" || path == "tmp/" || strings.HasPrefix(name, whiteout) {
			continue
		}
		if err := x.entry(fd, path, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (x *export) entry(fd int, path, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	h := &tar.Header{Name: path + name, Mode: int64(st.Mode & 0o7777), Uid: inside(st.Uid), Gid: inside(st.Gid), ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && kind != unix.S_IFCHR && st.Nlink > 1 { // overlayfs uses one inode for many whiteouts
		if first, ok := x.links[st.Ino]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return x.tar.WriteHeader(h)
		}
		x.links[st.Ino] = h.Name
	}
	switch kind {
	case unix.S_IFDIR:
		return x.subdir(fd, h, name, depth)
	case unix.S_IFREG:
		return x.file(fd, h, name)
	case unix.S_IFLNK:
		target, err := readlinkAt(fd, name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFCHR:
		if st.Rdev != 0 {
			return nil
		}
		h = &tar.Header{Name: path + whiteout + name, Typeflag: tar.TypeReg, Format: tar.FormatPAX, ModTime: time.Unix(0, 0)}
	default:
		return nil
	}
	return x.tar.WriteHeader(h)
}

func (x *export) subdir(at int, h *tar.Header, name string, depth int) error {
	fd, err := openDir(at, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	if err := x.attributes(fd, h); err != nil {
		return err
	}
	if err := x.tar.WriteHeader(h); err != nil {
		return err
	}
	value := make([]byte, 1)
	if n, err := unix.Fgetxattr(fd, "trusted.overlay.opaque", value); err == nil && n == 1 && value[0] == 'y' {
		if err := x.tar.WriteHeader(&tar.Header{Name: h.Name + opaque, Typeflag: tar.TypeReg, Format: tar.FormatPAX, ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
	}
	return x.dir(fd, h.Name, depth+1)
}

func (x *export) file(at int, h *tar.Header, name string) error {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), h.Name)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fs.ErrInvalid
	}
	if h.Typeflag, h.Size = tar.TypeReg, st.Size(); h.Size > x.most {
		return errLarge // before any of it is written
	}
	if err := x.attributes(fd, h); err != nil {
		return err
	}
	if err := x.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(x.tar, f, h.Size)
	return err
}

// attributes adds those that mean the same in every sandbox.
func (x *export) attributes(fd int, h *tar.Header) error {
	list := make([]byte, 64<<10)
	n, err := unix.Flistxattr(fd, list)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ERANGE) {
		return nil
	}
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return err
		}
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+name] = string(value[:n])
	}
	return nil
}

// inside is an owner on a layer as it is inside: what overlayfs made itself is root's.
func inside(id uint32) int {
	if id >= rangeSize {
		return 0
	}
	return int(id)
}

func readlinkAt(fd int, name string) (string, error) {
	b := make([]byte, 4097)
	n, err := unix.Readlinkat(fd, name, b)
	return string(b[:max(n, 0)]), err
}
