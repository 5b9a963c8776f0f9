// Package toolchain finds the programs and images that Weft runs but does not link: containerd and
// its shim, runc, gVisor, OpenBao or Vault, and the root filesystems of the built-in templates.
//
// A program is looked for in three places: what the operator names in WEFT_<NAME>_BIN, then PATH if
// the version there serves, then the cache that `make setup` fills. So a machine that already has a
// good containerd keeps it, and a machine that has nothing needs only `make setup`.
package toolchain

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
)

// Cache returns the directory that holds what was built or fetched for this user:
// WEFT_CACHE if set, else .cache/weft in the home directory. It may not exist yet.
func Cache() string {
	if dir := os.Getenv("WEFT_CACHE"); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			return abs
		}
		return dir
	}
	return filepath.Join(home(), ".cache", "weft")
}

// home asks the user database where HOME is unset, as it is under systemd.
func home() string {
	if dir, err := os.UserHomeDir(); err == nil {
		return dir
	}
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		return u.HomeDir
	}
	return "/root"
}

// Find returns the absolute path of a program, which is executable. Names are those of the
// upstream projects: containerd, containerd-shim-runc-v2, ctr, runc, bao (a `vault` serves, too),
// runsc, containerd-shim-runsc-v1, ferretdb. Any other name is looked for in the same places and taken at any version.
//
// The error says what was found instead and which command gets the program;
// errors.Is(err, fs.ErrNotExist) holds.
func Find(name string) (string, error) {
	if path, ok := os.LookupEnv(Variable(name)); ok && path != "" {
		abs, err := executable(path)
		if err != nil {
			return "", &missing{name, fmt.Sprintf("%s names %s: %v", Variable(name), path, err), "correct or unset " + Variable(name)}
		}
		return abs, nil
	}
	installed, pathErr := Installed(name)
	if pathErr == nil {
		return installed.Path, nil
	}
	if abs, err := executable(filepath.Join(Cache(), "bin", name)); err == nil {
		return abs, nil
	}
	remedy := "run `make setup`"
	if _, known := programs[name]; !known {
		remedy = "install it"
	}
	return "", &missing{name, pathErr.Error(), remedy}
}

// Image returns the path of the OCI archive of a built-in template (base, python), a tar that
// containerd imports. The image inside is called weft.local/template/<name>:<version>.
func Image(name string) (string, error) {
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return "", &missing{"image " + name, "no template can have that name", "see deploy/templates"}
	}
	path := filepath.Join(Cache(), "images", name+".tar")
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", &missing{"image of template " + name, path + " is not there", "run `make setup`"}
	}
	return path, nil
}

// Variable returns the name of the environment variable that overrides where a program is.
func Variable(name string) string {
	return "WEFT_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name)) + "_BIN"
}

// executable returns the absolute form of path, or why it can't be run.
func executable(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fs.ErrNotExist
	case info.IsDir():
		return "", fmt.Errorf("it is a directory")
	case info.Mode().Perm()&0o111 == 0:
		return "", fs.ErrPermission
	}
	return filepath.Abs(path)
}

// missing says what is not there, why what is there does not serve, and what to do.
type missing struct{ what, why, remedy string }

func (m *missing) Error() string {
	return fmt.Sprintf("%s: %s; %s", m.what, m.why, m.remedy)
}

func (m *missing) Is(target error) bool { return target == fs.ErrNotExist }
