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

// runcRuns times `runc run` of /bin/echo on the base template's files, with runc's own default configuration.
func runcRuns(ctx context.Context, e *Env, n int) ([]float64, error) {
	runc, err := toolchain.Find("runc")
	if err != nil {
		return nil, err
	}
	bundle := filepath.Join(e.dir, "bundle")
	root := filepath.Join(bundle, "rootfs")
	for _, d := range []string{"bin", "proc", "dev", "sys"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return nil, err
		}
	}
	// A static program that prints and ends: this one, in a mode of its own.
	echo := filepath.Join(root, "bin", "echo")
	src := filepath.Join(e.dir, "echo.go")
	if err := os.WriteFile(src, []byte("package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(\"hi\\n\") }\n"), 0o600); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", echo, src)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=mod")
	if err := quiet(build); err != nil {
		return nil, err
	}
	spec := exec.CommandContext(ctx, runc, "spec")
	spec.Dir = bundle
	if err := quiet(spec); err != nil {
		return nil, err
	}
	if err := editSpec(filepath.Join(bundle, "config.json")); err != nil {
		return nil, err
	}
	var out []float64
	for i := range n {
		t, err := each1(ctx, func() error {
			return quiet(exec.CommandContext(ctx, runc, "--root", filepath.Join(e.dir, "runc"), "run", "--bundle", bundle, "weft-bench-"+strconv.Itoa(i)))
		})
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
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
