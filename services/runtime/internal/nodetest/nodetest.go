// Package nodetest gives tests a machine to make sandboxes on: a private containerd with runc, a
// weft-init built from this tree, and the template images. All of it is gone when the tests are.
package nodetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/needs"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
)

// Machine is what sandboxes are made on.
type Machine struct {
	DataDir, RunDir string
	Init            string
	Config          containerd.Config

	once    *sync.Once
	missing error
	failed  error
}

// Main runs a package's tests and takes the Machine away that they have made by needing it. Call it from
// TestMain with the package's variable for the Machine; leaks is run at the very end.
func Main(m *testing.M, machine **Machine, leaks func() error) int {
	mm := &Machine{once: &sync.Once{}}
	*machine = mm
	code := m.Run()
	if err := errors.Join(mm.stop(), leaks()); err != nil {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		return max(code, 1)
	}
	return code
}

// start makes the Machine, or notes what is missing for it.
func (m *Machine) start() {
	switch {
	case testing.Short():
		m.missing = errShort
		return
	case os.Geteuid() != 0:
		m.missing = errors.New("sandboxes need root")
		return
	}
	tools := map[string]string{}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc", "runsc", "containerd-shim-runsc-v1"} {
		if tools[name], m.missing = toolchain.Find(name); m.missing != nil {
			return
		}
	}
	var image string
	if image, m.missing = toolchain.Image("base"); m.missing != nil {
		return
	}
	m.failed = m.make(tools, filepath.Dir(image))
}

func (m *Machine) make(tools map[string]string, images string) (err error) {
	if err := ClearDead(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "what killed tests have left can't all be cleared up:", err) // no fault of these tests
	}
	// Not below /tmp, which may be a tmpfs: overlayfs wants a disk for its upper layers.
	if m.DataDir, err = os.MkdirTemp("/var/tmp", "weft-test-"); err != nil {
		return err
	}
	if m.RunDir, err = os.MkdirTemp("/run", "weft-test-"); err != nil {
		return err
	}
	if err := errors.Join(own(m.DataDir), own(m.RunDir)); err != nil {
		return err
	}
	m.Init = filepath.Join(m.DataDir, "weft-init")
	if err := Build(m.Init, "github.com/weftmesh/weft/services/cmd/weft-init"); err != nil {
		return err
	}
	m.Config = containerd.Config{
		Dir: filepath.Join(m.DataDir, "containerd"), RunDir: m.RunDir,
		Containerd: tools["containerd"], Shim: tools["containerd-shim-runc-v2"], Runc: tools["runc"],
		Runsc: tools["runsc"], RunscShim: filepath.Join(m.DataDir, "bin", "containerd-shim-runsc-v1"),
		ImageDirs: []string{images}, Log: Log(),
	}
	return m.links(tools)
}

// OtherRuntime is a containerd runtime of the Machine that nothing in Weft knows by its name. It is runc's.
const OtherRuntime = "io.containerd.weftother.v1"

// links puts shims where the machine's containerd looks for them.
func (m *Machine) links(tools map[string]string) error {
	bin := filepath.Dir(m.Config.RunscShim)
	return errors.Join(os.MkdirAll(bin, 0o755), os.Symlink(tools["containerd-shim-runsc-v1"], m.Config.RunscShim),
		os.Symlink(tools["containerd-shim-runc-v2"], filepath.Join(bin, "containerd-shim-weftother-v1")))
}

var errShort = errors.New("sandboxes take time and root, and -short was given")

// Build makes a static binary of a package.
func Build(path, pkg string) error {
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return os.Chmod(path, 0o755)
}

// Log is for what is under test: shown with WEFT_TEST_LOG=1.
func Log() *slog.Logger {
	if os.Getenv("WEFT_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Need makes the Machine, once. It skips the test where something is missing, or fails it under
// WEFT_TEST_REQUIRE=1.
func (m *Machine) Need(t testing.TB) {
	t.Helper()
	m.once.Do(m.start)
	if m.failed != nil {
		t.Fatal(m.failed)
	}
	if m.missing == errShort {
		t.Skip(m.missing)
	}
	needs.All(t, m.missing)
}

// Engine opens the machine's containerd, for the time of the test.
func (m *Machine) Engine(t testing.TB) *containerd.Engine {
	t.Helper()
	m.Need(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := containerd.Open(ctx, m.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// stop ends containerd and removes all directories. What is still there then was left by the tests.
func (m *Machine) stop() error {
	if m.DataDir == "" {
		return nil // no test needed it
	}
	if m.Config.Dir == "" {
		return errors.Join(os.RemoveAll(m.DataDir), os.RemoveAll(m.RunDir))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	if e, err := containerd.Open(ctx, m.Config); err == nil {
		errs = append(errs, e.Stop(ctx))
	} else {
		errs = append(errs, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	errs = append(errs, err)
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if strings.HasPrefix(f[4], m.RunDir) || strings.HasPrefix(f[4], m.DataDir) {
			errs = append(errs, fmt.Errorf("the tests left a mount at %s", f[4]), unix.Unmount(f[4], unix.MNT_DETACH))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(m.DataDir), os.RemoveAll(m.RunDir))...)
}
