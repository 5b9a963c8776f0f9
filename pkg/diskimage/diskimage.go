// Package diskimage makes small disks out of sparse files: an ext4 image on a loop device, so that whoever writes
// there gets ENOSPC when its quota is full, and the node's disk does not fill. Nothing in an image is worth keeping
// over a crash of the machine: there is no journal.
//
// Needs loop devices, mkfs.ext4, and root.
package diskimage

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

// Bounds of an image in bytes. What the file system needs for itself comes on top of what was asked for.
const (
	MinBytes = 8 << 20
	MaxBytes = 1 << 40
)

// Images makes them. mkfs runs once per size; every further image is a copy of the few blocks that it wrote.
type Images struct {
	dir  string // of the templates
	mkfs string

	mu sync.Mutex
}

// Open keeps the empty images to copy from in dir, which is made. It fails where mkfs.ext4 is missing.
func Open(dir string) (*Images, error) {
	for _, p := range []string{"mkfs.ext4", "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"} {
		if path, err := exec.LookPath(p); err == nil {
			return &Images{dir: dir, mkfs: path}, os.MkdirAll(dir, 0o700)
		}
	}
	return nil, errors.New("mkfs.ext4 is not installed; install e2fsprogs")
}

// Size of an image whose files may take n bytes: the inode tables take a 32nd.
func Size(n int64) int64 {
	n = min(max(n, MinBytes), MaxBytes)
	const mib = 1 << 20
	return (n + n/24 + 2*mib) / mib * mib
}

// Create writes a fresh image for n bytes of files to path, which must not exist.
func (v *Images) Create(ctx context.Context, path string, n int64) error {
	t, err := v.template(ctx, Size(n))
	if err != nil {
		return err
	}
	return Copy(t, path)
}

func (v *Images) template(ctx context.Context, size int64) (string, error) {
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
		return "", fmt.Errorf("empty image: %w", err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return "", fmt.Errorf("empty image: %w", err)
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

// Copy copies the file src to dst, which must not exist, and leaves holes holes. Of a mounted image it takes what the
// disk has: see Frozen.
func Copy(src, dst string) error {
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
	err = CopyData(d, s, st.Size())
	return errors.Join(err, d.Close())
}

// CopyData copies size bytes from s to d, which is empty, and leaves holes holes.
func CopyData(d, s *os.File, size int64) error {
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
