package cli

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/weftmesh/weft/pkg/fault"
)

// packTree writes a directory as tar: files, directories and symbolic links, without owners. Other
// things (sockets, devices) are named to skipped.
func packTree(dir string, w io.Writer, skipped func(path, why string)) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.Wrap(err, fault.NotFound, "%s can't be read", dir)
	}
	defer func() { _ = root.Close() }()
	t := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return err
		}
		return packOne(root, t, p, skipped)
	})
	if err != nil {
		return err
	}
	return t.Close()
}

func packOne(root *os.Root, t *tar.Writer, p string, skipped func(path, why string)) error {
	info, err := root.Lstat(p)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: filepath.ToSlash(p), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(p); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		return packFile(root, t, p, h)
	default:
		skipped(p, "it is no file, directory or symbolic link")
		return nil
	}
	return t.WriteHeader(h)
}

func packFile(root *os.Root, t *tar.Writer, p string, h *tar.Header) error {
	f, err := root.Open(p)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	// A file that grows meanwhile is taken as long as it was; one that shrinks is an error of tar's.
	_, err = io.Copy(t, io.LimitReader(f, h.Size))
	return err
}

// unpackTree writes a tar into dir, which is made if it is not there. Nothing in the tar can lead
// outside of dir: every path is opened within it, symbolic links that point outside lead nowhere.
func unpackTree(r io.Reader, dir string) (files int, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fault.Wrap(err, fault.Denied, "%s can't be made", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }()
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return files, err
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "./"))
		if name == "." {
			continue
		}
		if !filepath.IsLocal(name) {
			return files, fault.New(fault.Invalid, "the tree has a path that leads outside: %q", h.Name)
		}
		if err := unpackOne(root, name, h, t); err != nil {
			return files, fmt.Errorf("%s: %w", name, err)
		}
		if h.Typeflag == tar.TypeReg {
			files++
		}
	}
}

func unpackOne(root *os.Root, name string, h *tar.Header, r io.Reader) error {
	mode := fs.FileMode(h.Mode).Perm()
	if d := path.Dir(name); d != "." {
		if err := root.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return root.Chmod(name, mode|0o700)
	case tar.TypeSymlink:
		if err := root.RemoveAll(name); err != nil {
			return err
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		_ = root.Remove(name) // not written through: it may be a link
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		err = errors.Join(err, f.Close())
		if err == nil {
			err = root.Chtimes(name, h.ModTime, h.ModTime)
		}
		return err
	}
	return nil // what else a tar can hold has no meaning here
}
