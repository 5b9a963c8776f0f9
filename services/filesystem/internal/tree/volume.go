package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a volume in bytes. What the filesystem needs for itself comes on top of what was asked for.
const (
	minVolume = 8 << 20
	maxVolume = 1 << 40
)

// volumes makes the images in which overlays write. mkfs runs once per size; every further image is a copy
// of the few blocks that it wrote.
type volumes struct {
	dir  string // of the templates
	mkfs string

	mu sync.Mutex
}

func newVolumes(dir string) (*volumes, error) {
	for _, p := range []string{"mkfs.ext4", "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"} {
		if path, err := exec.LookPath(p); err == nil {
			return &volumes{dir: dir, mkfs: path}, os.MkdirAll(dir, 0o700)
		}
	}
	return nil, errors.New("mkfs.ext4 is not installed; install e2fsprogs")
}

// imageSize is the size of an image whose files may take n bytes: the inode tables take a 32nd.
func imageSize(n int64) int64 {
	n = min(max(n, minVolume), maxVolume)
	const mib = 1 << 20
	return (n + n/24 + 2*mib) / mib * mib
}

// create writes a fresh image for n bytes of files to path.
func (v *volumes) create(ctx context.Context, path string, n int64) error {
	t, err := v.template(ctx, imageSize(n))
	if err != nil {
		return err
	}
	return copySparse(t, path)
}

func (v *volumes) template(ctx context.Context, size int64) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	path := filepath.Join(v.dir, strconv.FormatInt(size, 10)+".img")
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	tmp := path + ".tmp"
	_ = os.Remove(tmp)
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("volume template: %w", err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return "", fmt.Errorf("volume template: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// No journal: an image is never used again after a crash of the machine. One inode for 8 KiB, packed metadata and no backups
	// of the superblock keep what has to be copied below 200 KiB.
	cmd := exec.CommandContext(ctx, v.mkfs, "-q", "-F", "-b", "4096", "-I", "256", "-i", "8192", "-m", "0",
		"-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard,packed_meta_blocks=1,num_backup_sb=0,root_owner=0:0", tmp)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return path, os.Rename(tmp, path)
}

// copySparse copies src to dst, which must not exist, and leaves holes holes.
func copySparse(src, dst string) error {
	s, err := os.Open(src)
	if err != nil {
		return err
	}
	defer s.Close()
	st, err := s.Stat()
	if err != nil {
		return err
	}
	d, err := os.OpenFile(dst, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copyData(d, s, st.Size())
	return errors.Join(err, d.Close())
}

func copyData(d, s *os.File, size int64) error {
	if err := d.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		data, err := s.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		hole, err := s.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(d, data), io.NewSectionReader(s, data, hole-data)); err != nil {
			return err
		}
		at = hole
	}
	return nil
}

// mountVolume mounts the image on dst through a loop device, which goes away with the mount.
func mountVolume(image, dst string) error {
	dev, err := attach(image)
	if err != nil {
		return fmt.Errorf("loop device: %w", err)
	}
	defer dev.Close()
	// Discard gives blocks of removed files back to the node's disk. The inode tables need no zeroing: holes read as zero.
	if err := unix.Mount(dev.Name(), dst, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "discard,noinit_itable"); err != nil {
		return fmt.Errorf("mount %s on %s: %w", dev.Name(), dst, err)
	}
	return nil
}

// attach puts the image on a free loop device. The device is freed when nothing has it open or mounted any more.
func attach(image string) (*os.File, error) {
	img, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer img.Close()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("this machine offers none (modprobe loop): %w", err)
	}
	defer ctl.Close()
	for range 1000 { // others look for free devices, too, and may be faster
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		dev, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		cfg := unix.LoopConfig{Fd: uint32(img.Fd()), Size: 4096}
		cfg.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], image)
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &cfg)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, errors.New("no free one after 1000 tries")
}
