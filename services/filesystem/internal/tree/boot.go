package tree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// bootID names this run of the machine's kernel.
const bootID = "/proc/sys/kernel/random/boot_id"

// forgetAfterBoot removes layers and overlays if the machine was restarted since they were made: layers are not synced, so a power loss may have
// left names without their contents, and overlays have lost their mounts. Both are made again from chunks.
func (t *Trees) forgetAfterBoot(bootFile string) error {
	now, err := os.ReadFile(bootFile)
	if err != nil {
		return err
	}
	note := filepath.Join(t.data, "boot")
	then, err := os.ReadFile(note)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if strings.TrimSpace(string(then)) == strings.TrimSpace(string(now)) {
		return nil
	}
	ids, err := t.List()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := t.Remove(id); err != nil {
			return err
		}
	}
	for _, d := range []string{"layers", "volumes"} {
		if err := os.RemoveAll(filepath.Join(t.data, d)); err != nil {
			return err
		}
	}
	return os.WriteFile(note, now, 0o600)
}
