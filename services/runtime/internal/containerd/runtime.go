package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/pkg/cio"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
)

// Runtimes that the Engine brings options for. Any other that containerd knows is used as it is.
const (
	Runc  = "io.containerd.runc.v2"
	Runsc = "io.containerd.runsc.v1" // gVisor
)

// runtimeName is what a runtime is called. containerd would take the path of a program as well: whoever
// may name a runtime must not be able to name any program of the machine.
var runtimeName = regexp.MustCompile(`^[a-z0-9]+(?:[.-][a-z0-9]+){0,8}\.[a-z0-9-]{1,32}\.v[0-9]{1,4}$`)

// runtime gives the name and the options of a runtime; empty is Runc. Without options the value is nil.
func (e *Engine) runtime(name string) (string, any, error) {
	if name == "" {
		name = Runc
	}
	if err := e.HasRuntime(name); err != nil {
		return "", nil, err
	}
	switch name {
	case Runc:
		return name, &options.Options{BinaryName: e.cfg.Runc, Root: e.runcRoot()}, nil
	case Runsc:
		return name, &runtimeoptions.Options{TypeUrl: "io.containerd.runsc.v1.options", ConfigPath: e.runscConfig()}, nil
	}
	return name, nil, nil
}

// HasRuntime says with an error that the runtime called name can't be used, and why. Of a containerd that is not the
// Engine's own, only the use of a runtime shows whether it has it.
func (e *Engine) HasRuntime(name string) error {
	switch {
	case !runtimeName.MatchString(name):
		return fault.New(fault.Invalid, "%q is no name of a containerd runtime; io.containerd.kata.v2 is one", clip(name))
	case name == Runc:
		return nil
	case name == Runsc && (e.cfg.Runsc == "" || e.cfg.Socket == "" && e.cfg.RunscShim == ""):
		return fault.New(fault.Unavailable, "this node has no gVisor; run `make setup` there, or install runsc and containerd-shim-runsc-v1")
	case e.cfg.Socket != "":
		return nil
	}
	shim := shimOf(name)
	for _, dir := range e.cfg.path() {
		if st, err := os.Stat(filepath.Join(dir, shim)); err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
			return nil
		}
	}
	return noRuntime(name)
}

func noRuntime(name string) error {
	return fault.New(fault.Unavailable, "this node has no containerd runtime %q; install %s where containerd finds it", name, shimOf(name))
}

// shimOf is the program that containerd starts for a runtime.
func shimOf(name string) string {
	parts := strings.Split(name, ".")
	return "containerd-shim-" + strings.Join(parts[len(parts)-2:], "-")
}

// missingRuntime turns containerd's word for a runtime that it doesn't have into ours.
func missingRuntime(name string, err error) error {
	if err != nil && strings.Contains(err.Error(), "binary not installed") {
		return noRuntime(name)
	}
	return err
}

// path is where a private daemon looks for programs.
func (c Config) path() []string {
	var dirs []string
	for _, program := range []string{c.Shim, c.Runc, c.RunscShim} {
		if program != "" {
			dirs = append(dirs, filepath.Dir(program))
		}
	}
	return append(dirs, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
}

func (e *Engine) runscRoot() string   { return filepath.Join(e.cfg.RunDir, "runsc") }
func (e *Engine) runscConfig() string { return filepath.Join(e.cfg.RunDir, "runsc.toml") }

// runscOptions is what gVisor's shim reads, and how it calls runsc.
//
//   - systrap works on every machine, also on a virtual one without nested virtualisation.
//   - The network is gVisor's own with a loopback interface: nothing of the host's is handed in.
//   - The supervisor's socket lies on the host: dialling it is the one way out.
//   - What a sandbox writes to its root or to a tmpfs is in the sentry's memory, which is the sandbox's.
//   - The sentry runs in the sandbox's own range of ids, as it does only when it opens the node's files itself, those
//     that were handed to it. Else it would be the same user of the node, nobody, for every sandbox.
//   - Setuid programs work where no_new_privs is not set: with root inside.
var runscOptions = template.Must(template.New("runsc").Parse(`binary_name = {{printf "%q" .Binary}}
root = {{printf "%q" .Root}}
log_level = "warning"

[runsc_config]
platform = "systrap"
network = "none"
host-uds = "open"
overlay2 = "none"
directfs = "true"
allow-suid = "true"
`))

// writeRunscConfig puts the options where containers' records say they are.
func (e *Engine) writeRunscConfig() error {
	if e.cfg.Runsc == "" {
		return nil
	}
	var b strings.Builder
	if err := runscOptions.Execute(&b, struct{ Binary, Root string }{e.cfg.Runsc, e.runscRoot()}); err != nil {
		return err
	}
	if err := os.MkdirAll(e.cfg.RunDir, 0o711); err != nil {
		return err
	}
	tmp := e.runscConfig() + ".new"
	if err := os.WriteFile(tmp, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, e.runscConfig())
}

// runscFiles lists the files that runsc keeps of its containers, by container.
func (e *Engine) runscFiles() (map[string][]string, error) {
	dir := filepath.Join(e.runscRoot(), Namespace)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	files := map[string][]string{}
	for _, f := range entries {
		if id := idIn(f.Name()); id != "" {
			files[id] = append(files[id], filepath.Join(dir, f.Name()))
		}
	}
	return files, err
}

// idIn finds the sandbox in a name of runsc's, as <id>_sandbox:<id>.state or runsc-<id>.sock.
func idIn(name string) string {
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == ':' || r == '-' || r == '.' }) {
		if len(part) == idLength {
			return part
		}
	}
	return ""
}

// idLength of a sandbox's id; nothing else in the names of runsc's files is as long.
const idLength = 20

// deleteRunscState removes what runsc still has of id after containerd has deleted it, and with the last container
// what they share.
func (e *Engine) deleteRunscState(ctx context.Context, id string) error {
	files, err := e.runscFiles()
	if err != nil {
		return err
	}
	if len(files[id]) > 0 && e.cfg.Runsc != "" {
		root := filepath.Join(e.runscRoot(), Namespace)
		// It fails where the state is half written; its files go all the same, and what runs is in the control group.
		if out, err := program(ctx, e.cfg.Runsc, "--root", root, "delete", "--force", id); err != nil {
			e.cfg.Log.Warn("runsc can't remove a container's state", "container", id, "error", err, "says", out)
		}
	}
	var errs []error
	for _, f := range files[id] {
		if err := os.RemoveAll(f); err != nil {
			errs = append(errs, fmt.Errorf("state of %s: %w", id, err))
		}
	}
	// Looked at after our own are gone: of two that go at the same time, one sees that it was the last.
	if files, err = e.runscFiles(); err == nil && len(files) == 0 {
		errs = append(errs, e.dropGoferNetwork())
	}
	return errors.Join(append(errs, err)...)
}

// dropGoferNetwork takes away the empty network namespace that runsc pins for all gofers. A container that is just
// being made has it open, or pins a new one.
func (e *Engine) dropGoferNetwork() error {
	path := filepath.Join(e.runscRoot(), Namespace, "null-netns")
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // none, or none any more
			break
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EBUSY) {
		return err
	}
	return nil
}

// output gives the address to which process 1's standard outputs go, empty for nowhere. gVisor's shim takes a file that is there, by
// its path; the others make one, by its address.
func output(runtime, log string) (string, error) {
	switch {
	case log == "":
		return "", nil
	case runtime != Runsc:
		uri, err := cio.LogURIGenerator("file", log, nil)
		if err != nil {
			return "", err
		}
		return uri.String(), nil
	}
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	return log, f.Close()
}
