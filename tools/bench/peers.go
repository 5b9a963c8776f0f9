package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/weftmesh/weft/pkg/app/toolchain"
)

// ctr gives containerd's own command, speaking with the containerd of the mesh.
func (e *Env) ctr(w *world) (func(ctx context.Context, args ...string) *exec.Cmd, error) {
	bin, err := toolchain.Find("ctr")
	if err != nil {
		return nil, err
	}
	socket, err := socketOf(w.dir)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, bin, append([]string{"--address", socket, "--namespace", "weft"}, args...)...)
	}, nil
}

// socketOf finds the socket of the private containerd of a data directory.
func socketOf(dir string) (string, error) {
	sum := sha256.Sum256([]byte(filepath.Join(dir, "runtime"))) // as the node marks what is its own
	path := filepath.Join("/run/weft", hex.EncodeToString(sum[:4]), "c.sock")
	_, err := os.Stat(path)
	return path, err
}

// besideTools adds what plain tools take for the same, of those that are installed.
func (r Result) besideTools(ctx context.Context, e *Env, tools ...string) Result {
	for _, tool := range tools {
		ts, err := toolRuns(ctx, e, tool, rounds(12)+2)
		if err != nil {
			fmt.Fprintf(os.Stderr, "  %s run not measured: %v\n", tool, err)
			continue
		}
		r = r.beside(tool+" run", ts[2:])
	}
	return r
}

// toolRuns times a tool's run of a program that prints and ends, in its own default configuration.
func toolRuns(ctx context.Context, e *Env, tool string, n int) ([]float64, error) {
	bundle, err := e.bundle(ctx)
	if err != nil {
		return nil, err
	}
	run, err := toolRun(ctx, e, tool, bundle)
	if err != nil {
		return nil, err
	}
	var out []float64
	for i := range n {
		t, err := each1(ctx, func() error { return quiet(run(strconv.Itoa(i))) })
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// toolRun gives the command of one run.
func toolRun(ctx context.Context, e *Env, tool, bundle string) (func(n string) *exec.Cmd, error) {
	switch tool {
	case "runc", "runsc":
		bin, err := toolchain.Find(tool)
		args := []string{"--root", filepath.Join(e.dir, tool)}
		if tool == "runsc" {
			args = append(args, "--network=none")
		}
		return func(n string) *exec.Cmd {
			return exec.CommandContext(ctx, bin, append(args, "run", "--bundle", bundle, "weft-bench-"+n)...)
		}, err
	case "podman":
		bin, err := exec.LookPath(tool)
		return func(string) *exec.Cmd {
			return exec.CommandContext(ctx, bin, "run", "--rm", "--network=none", "--rootfs", filepath.Join(bundle, "rootfs"), "/bin/echo")
		}, err
	}
	bin, err := exec.LookPath("docker")
	if err != nil {
		return nil, err
	}
	load := exec.CommandContext(ctx, "/bin/sh", "-c", `tar -C "$1" -c . | "$2" import - weft-bench`, "load", filepath.Join(bundle, "rootfs"), bin)
	if err := quiet(load); err != nil {
		return nil, err
	}
	return func(string) *exec.Cmd {
		return exec.CommandContext(ctx, bin, "run", "--rm", "--network=none", "weft-bench", "/bin/echo")
	}, nil
}

// bundle makes a container's files and its description, once: a static program that prints and ends.
func (e *Env) bundle(ctx context.Context) (string, error) {
	bundle := filepath.Join(e.dir, "bundle")
	if _, err := os.Stat(filepath.Join(bundle, "config.json")); err == nil {
		return bundle, nil
	}
	runc, err := toolchain.Find("runc")
	if err != nil {
		return "", err
	}
	root := filepath.Join(bundle, "rootfs")
	for _, d := range []string{"bin", "proc", "dev", "sys"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return "", err
		}
	}
	echo, src := filepath.Join(root, "bin", "echo"), filepath.Join(e.dir, "echo.go")
	if err := os.WriteFile(src, []byte("package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(\"hi\\n\") }\n"), 0o600); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", echo, src)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=mod")
	if err := quiet(build); err != nil {
		return "", err
	}
	spec := exec.CommandContext(ctx, runc, "spec")
	spec.Dir = bundle
	if err := quiet(spec); err != nil {
		return "", err
	}
	return bundle, editSpec(filepath.Join(bundle, "config.json"))
}

// editSpec makes the default specification print and end, without a terminal.
func editSpec(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var s map[string]any
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	p := s["process"].(map[string]any)
	p["terminal"] = false
	p["args"] = []string{"/bin/echo"}
	delete(p, "rlimits") // the default may lie above this machine's hard limit
	if b, err = json.Marshal(s); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// makeTree writes n small files into folders of a hundred.
func makeTree(dir string, n int) (string, error) {
	for i := range n {
		d := filepath.Join(dir, fmt.Sprintf("d%03d", i/100))
		if i%100 == 0 {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return "", err
			}
		}
		if err := os.WriteFile(filepath.Join(d, fmt.Sprintf("f%02d.txt", i%100)), fmt.Appendf(nil, "file %d\n%s\n", i, payload), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// change rewrites k files and gives their paths.
func change(dir string, round, k int) ([]string, error) {
	var out []string
	for i := range k {
		p := filepath.Join(fmt.Sprintf("d%03d", (round*7+i*9)%100), fmt.Sprintf("f%02d.txt", (round*13+i)%100))
		if err := os.WriteFile(filepath.Join(dir, p), fmt.Appendf(nil, "round %d of %d\n", round, i), 0o644); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func git(dir string, args ...string) *exec.Cmd {
	return exec.Command("git", append([]string{"-C", dir, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"}, args...)...)
}

func commit(dir string) error {
	if err := quiet(git(dir, "add", "-A")); err != nil {
		return err
	}
	return quiet(git(dir, "commit", "-q", "-m", "round"))
}

// tarOf streams the paths below dir as tar; nil is every file.
func tarOf(dir string, paths []string) io.Reader {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(writeTar(w, dir, paths)) }()
	return r
}

func writeTar(w io.Writer, dir string, paths []string) error {
	if paths == nil {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.Name() == ".git" {
				return filepath.SkipDir
			}
			if d.Type().IsRegular() {
				rel, err := filepath.Rel(dir, p)
				paths = append(paths, rel)
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	t := tar.NewWriter(w)
	for _, p := range paths {
		b, err := os.ReadFile(filepath.Join(dir, p))
		if err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Name: p, Mode: 0o644, Size: int64(len(b)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := t.Write(b); err != nil {
			return err
		}
	}
	return t.Close()
}
