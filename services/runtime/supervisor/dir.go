package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// sandboxDir is one sandbox's directory on the node:
//
//	key        the node's copy of the key, root only: it survives the node's process
//	run/       mounted read-only into the sandbox, searchable by process 1 only
//	  key      the sandbox's copy, readable by process 1 only, gone after the first handshake
//	  sock     the node's socket
type sandboxDir string

func (d sandboxDir) run() string     { return filepath.Join(string(d), "run") }
func (d sandboxDir) nodeKey() string { return filepath.Join(string(d), "key") }
func (d sandboxDir) initKey() string { return filepath.Join(d.run(), "key") }

// prepare makes the directory, or takes up one that an earlier process made. The node's copy of the
// key is written last: without it nothing was given out yet, and all is made anew.
func (d sandboxDir) prepare(owner Owner) (wire.Key, error) {
	key, err := d.readKey()
	if err == nil {
		return key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	// 0711: a container runtime that mounts from inside the user namespace must get through.
	if err := os.MkdirAll(string(d), 0o711); err != nil {
		return key, err
	}
	if err := os.MkdirAll(d.run(), 0o700); err != nil {
		return key, err
	}
	if err := os.Chown(d.run(), int(owner.UID), int(owner.GID)); err != nil {
		return key, err
	}
	key = wire.NewKey()
	if err := writeKey(d.initKey(), key, &owner); err != nil {
		return key, err
	}
	return key, writeKey(d.nodeKey(), key, nil)
}

func (d sandboxDir) readKey() (key wire.Key, err error) {
	b, err := os.ReadFile(d.nodeKey())
	if err != nil {
		return key, err
	}
	if len(b) != len(key) {
		return key, fmt.Errorf("key file %s has %d bytes, not %d", d.nodeKey(), len(b), len(key))
	}
	copy(key[:], b)
	return key, nil
}

// writeKey makes the file as a whole or not at all, for whoever reads it while the machine runs: the sandbox ends with that.
func writeKey(path string, key wire.Key, owner *Owner) error {
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	_, err = f.Write(key[:])
	if err == nil && owner != nil {
		err = f.Chown(int(owner.UID), int(owner.GID))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// dropInitKey deletes the sandbox's copy, once process 1 has shown that it holds the key.
func (d sandboxDir) dropInitKey() error {
	if err := os.Remove(d.initKey()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// listen makes the socket anew, by way of the directory's descriptor: the path of a socket holds only 107
// bytes, and a data directory may lie deep.
func (d sandboxDir) listen(owner Owner) (net.Listener, error) {
	fd, err := unix.Open(d.run(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Unlinkat(fd, "sock", 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/sock", fd), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // that path means nothing later; Add and Remove see to the file
	if err := unix.Fchownat(fd, "sock", int(owner.UID), int(owner.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		_ = l.Close()
		return nil, err
	}
	if err := unix.Fchmodat(fd, "sock", 0o600, 0); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}
