package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// rate gives MB/s of n bytes in d.
func rate(n int64, d time.Duration) float64 { return float64(n) / 1e6 / d.Seconds() }

func stdoutMesh(ctx context.Context, e *Env) ([]Result, error) {
	size := int64(1 << 30)
	if quick {
		size = 256 << 20
	}
	var out []float64
	err := e.inSandbox(ctx, workspace.SandboxCreate{}, func(w *world, id string) error {
		for range rounds(3) {
			start := time.Now()
			s, err := w.client.Exec(ctx, id, runtime.ExecRequest{Argv: []string{"head", "-c", strconv.FormatInt(size, 10), "/dev/zero"}})
			if err != nil {
				return err
			}
			_ = s.Channel(stream.Stdin).CloseWrite()
			n, err := io.Copy(io.Discard, s.Channel(stream.Stdout))
			_ = s.Close()
			if err != nil || n != size {
				return fmt.Errorf("%d of %d bytes came: %w", n, size, err)
			}
			out = append(out, rate(n, time.Since(start)))
		}
		return nil
	})
	return one(newResult("stdout_mesh", "MB/s", out).atLeast(200), err)
}

var megabytes = regexp.MustCompile(`([0-9.]+) MB/s`)

// stdoutNode runs the supervisor's own benchmark, which has a sandbox without a mesh.
func stdoutNode(ctx context.Context, e *Env) ([]Result, error) {
	c := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkStream$/^attached$", "-benchtime", strconv.Itoa(rounds(5))+"x", "./services/runtime/supervisor")
	c.Dir = e.root
	b, err := c.CombinedOutput()
	m := megabytes.FindAllSubmatch(b, -1)
	if err != nil || len(m) == 0 {
		return nil, fmt.Errorf("the supervisor's benchmark: %v: %s", err, b)
	}
	var out []float64
	for _, x := range m {
		v, err := strconv.ParseFloat(string(x[1]), 64)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return []Result{newResult("stdout_node", "MB/s", out).atLeast(500)}, nil
}

// fileBytes is how large the file is.
const fileBytes = 100 << 20

func fileWrite(ctx context.Context, e *Env) ([]Result, error) {
	out, err := files(ctx, e, func(w *world, id string) error {
		_, err := w.client.WriteFile(ctx, id, "/tmp/big", 0o644, zeros(fileBytes))
		return err
	})
	return one(newResult("file_write", "MB/s", out), err)
}

func fileRead(ctx context.Context, e *Env) ([]Result, error) {
	out, err := files(ctx, e, func(w *world, id string) error {
		n, err := w.client.ReadFile(ctx, id, "/tmp/big", io.Discard)
		if err == nil && n != fileBytes {
			err = fmt.Errorf("%d of %d bytes came", n, fileBytes)
		}
		return err
	})
	return one(newResult("file_read", "MB/s", out), err)
}

// files times what is done with a file of fileBytes that is there. What is there is written once before.
func files(ctx context.Context, e *Env, do func(w *world, id string) error) ([]float64, error) {
	var out []float64
	err := e.inSandbox(ctx, workspace.SandboxCreate{}, func(w *world, id string) error {
		if _, err := w.client.WriteFile(ctx, id, "/tmp/big", 0o644, zeros(fileBytes)); err != nil {
			return err
		}
		for range rounds(5) {
			start := time.Now()
			if err := do(w, id); err != nil {
				return err
			}
			out = append(out, rate(fileBytes, time.Since(start)))
		}
		return nil
	})
	return out, err
}
