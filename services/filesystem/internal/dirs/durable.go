package dirs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// MkdirDurable makes a directory of our own and those above it that are missing, so that they are there after a power
// loss, too: what is synced in a directory is lost if the directory's own name was not.
func MkdirDurable(path string, mode fs.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := MkdirDurable(filepath.Dir(path), mode); err != nil {
			return err
		}
		err = os.Mkdir(path, mode)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
