package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Installation is a program found on PATH whose version serves.
type Installation struct {
	Path    string // absolute
	Version string // as in 2.4.2
}

// program is what Weft demands of one that it did not build.
type program struct {
	version func(output string) (Version, bool)  // nil: ParseVersion
	names   []string                             // on PATH, in order of preference; none: never taken from PATH
	args    []string                             // make it print its version
	serves  func(output string, v Version) error // nil error: it will do
	with    []string                             // programs that must serve, too, because they belong together
}

var programs = map[string]program{
	"containerd": {
		names: []string{"containerd"}, args: []string{"--version"},
		// 2.1 has idmapped user namespaces and the sandbox API as we use them.
		serves: atLeast(Version{2, 1, 0, ""}), with: []string{"containerd-shim-runc-v2"},
	},
	"containerd-shim-runc-v2": {
		names: []string{"containerd-shim-runc-v2"}, args: []string{"-v"},
		serves: atLeast(Version{2, 1, 0, ""}), with: []string{"containerd"},
	},
	"ctr": {
		names: []string{"ctr"}, args: []string{"--version"},
		serves: atLeast(Version{2, 1, 0, ""}), with: []string{"containerd"},
	},
	"runc":     {names: []string{"runc"}, args: []string{"--version"}, serves: runcServes},
	"bao":      {names: []string{"bao", "vault"}, args: []string{"version"}, serves: vaultServes},
	"ferretdb": {},
	"runsc": {
		names: []string{"runsc"}, args: []string{"--version"}, version: gvisorRelease,
		serves: atLeast(gvisorTried), with: []string{"containerd-shim-runsc-v1"},
	},
	"containerd-shim-runsc-v1": {
		names: []string{"containerd-shim-runsc-v1"}, args: []string{"-v"},
		serves: atLeast(Version{2, 0, 0, ""}), with: []string{"runsc"}, // of the containerd that it was made from
	},
}

// Installed returns the program that PATH has under name, if its version serves. The error is a
// sentence about what PATH has instead.
func Installed(name string) (Installation, error) {
	p, known := programs[name]
	if !known {
		path, err := exec.LookPath(name)
		if err != nil {
			return Installation{}, errors.New("it is not on PATH")
		}
		return Installation{Path: path}, nil
	}
	found, err := p.onPath()
	if err != nil {
		return Installation{}, err
	}
	for _, other := range p.with {
		if _, err := programs[other].onPath(); err != nil {
			return Installation{}, fmt.Errorf("%s is of no use alone, %s is missing: %w", found.Path, other, err)
		}
	}
	return found, nil
}

// Serves runs the program at path, as the one called name, and says whether it will do.
func Serves(name, path string) (Installation, error) {
	p := programs[name]
	if len(p.args) == 0 {
		_, err := executable(path)
		return Installation{Path: path}, err
	}
	output, err := versionOf(path, p.args)
	if err != nil {
		return Installation{}, fmt.Errorf("%s does not run: %w", path, err)
	}
	parse := p.version
	if parse == nil {
		parse = ParseVersion
	}
	v, ok := parse(output)
	if !ok {
		return Installation{}, fmt.Errorf("%s prints no version", path)
	}
	if err := p.serves(output, v); err != nil {
		return Installation{}, fmt.Errorf("%s is %s, %w", path, v, err)
	}
	return Installation{Path: path, Version: v.String()}, nil
}

// onPath returns the first of p's names that PATH has and whose version serves.
func (p program) onPath() (Installation, error) {
	var errs []string
	for _, name := range p.names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		found, err := Serves(p.names[0], path)
		if err == nil {
			return found, nil
		}
		errs = append(errs, err.Error())
	}
	if len(errs) == 0 {
		return Installation{}, errors.New("it is not on PATH")
	}
	return Installation{}, errors.New(strings.Join(errs, "; "))
}

func atLeast(least Version) func(string, Version) error {
	return func(_ string, v Version) error {
		if v.Less(least) {
			return fmt.Errorf("at least %s is needed", least)
		}
		return nil
	}
}

// runcServes wants the fixes of CVE-2025-31133, 52565 and 52881, which each maintained series got
// in a release of its own, and seccomp, which runc leaves out in silence when built without the tag.
func runcServes(output string, v Version) error {
	fixed := Version{1, 4, 0, ""}
	switch {
	case v.Major == 1 && v.Minor == 2:
		fixed = Version{1, 2, 8, ""}
	case v.Major == 1 && v.Minor == 3:
		fixed = Version{1, 3, 3, ""}
	}
	if v.Less(fixed) {
		return errors.New("1.2.8, 1.3.3, 1.4.0 or later is needed (container escapes were fixed there)")
	}
	if !strings.Contains(output, "libseccomp:") {
		return errors.New("built without seccomp")
	}
	return nil
}

// gvisorTried is the release with which everything was tried; what is older lacks options that we use.
var gvisorTried = Version{20260905, 0, 0, ""}

// gvisorRelease reads the number of a gVisor release, as in release-20260905.0: a day and a count.
func gvisorRelease(output string) (Version, bool) {
	m := releasePattern.FindStringSubmatch(output)
	if m == nil {
		return Version{}, false
	}
	day, _ := strconv.Atoi(m[1]) // eight digits
	count, _ := strconv.Atoi(m[2])
	return Version{Major: day, Minor: count}, true
}

var releasePattern = regexp.MustCompile(`\brelease-(\d{8})\.(\d{1,6})\b`)

// vaultServes takes OpenBao, and HashiCorp's Vault unless it would ask for a licence.
func vaultServes(output string, v Version) error {
	if strings.HasPrefix(output, "OpenBao") {
		return atLeast(Version{2, 0, 0, ""})(output, v)
	}
	if strings.Contains(output, "+ent") {
		return errors.New("an enterprise build that needs a licence")
	}
	return atLeast(Version{1, 14, 0, ""})(output, v)
}

// versionDeadline is long because a cold start from a slow disk reads 130 MB.
const versionDeadline = 20 * time.Second

// outputs remembers what programs printed: one start of a process each, however often we are asked.
var outputs sync.Map // of "path size mtime" → string

func versionOf(path string, args []string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	key := fmt.Sprint(path, info.Size(), info.ModTime().UnixNano())
	if output, ok := outputs.Load(key); ok {
		return output.(string), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), versionDeadline)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, args...).Output()
	if err != nil {
		return "", err
	}
	outputs.Store(key, string(output))
	return string(output), nil
}
