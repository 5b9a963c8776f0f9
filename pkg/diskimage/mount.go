package diskimage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Mount mounts the image on dir through a loop device, which goes away with the mount.
func Mount(image, dir string) error {
	dev, err := attach(image)
	if err != nil {
		return fmt.Errorf("loop device: %w", err)
	}
	defer dev.Close()
	// Discard gives blocks of removed files back to the node's disk. The inode tables need no zeroing: holes read as zero.
	if err := unix.Mount(dev.Name(), dir, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "discard,noinit_itable"); err != nil {
		return fmt.Errorf("mount %s on %s: %w", dev.Name(), dir, err)
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

// The ioctls that stop a file system's writes, and let them go on: _IOWR('X', 119, int) and 120.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// Frozen runs do while nothing in the image mounted on dir changes and its file holds all that was written. Whoever
// writes there meanwhile waits. A process that is ended in between leaves it so: see Thaw.
func Frozen(dir string, do func() error) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetInt(fd, fiFreeze, 0); err != nil {
		return fmt.Errorf("freeze %s: %w", dir, err)
	}
	err = do()
	if terr := unix.IoctlSetInt(fd, fiThaw, 0); terr != nil {
		err = errors.Join(err, fmt.Errorf("thaw %s: %w", dir, terr))
	}
	return err
}

// Thaw lets the image that is mounted on dir go on where a process was ended within Frozen. Nobody else does: it stays
// frozen when it is unmounted, too, and then keeps its loop device for ever, and whoever waits to write to it can't
// even be killed. Where nothing is frozen, or mounted, nothing is done.
func Thaw(dir string) error {
	var at, above unix.Stat_t
	if err := errors.Join(unix.Lstat(dir, &at), unix.Lstat(filepath.Dir(dir), &above)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("thaw %s: %w", dir, err)
	}
	if at.Dev == above.Dev {
		return nil // the machine's own file system is somebody else's to thaw
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("thaw %s: %w", dir, err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetInt(fd, fiThaw, 0); err != nil && !errors.Is(err, unix.EINVAL) { // it is not frozen
		return fmt.Errorf("thaw %s: %w", dir, err)
	}
	return nil
}
