package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
)

// copied is what cp prints with --json.
type copied struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Bytes int64  `json:"bytes,omitempty"`
	Files int    `json:"files,omitempty"`
}

func (a *app) cpCommand() *cobra.Command {
	var recursive bool
	c := &cobra.Command{Use: "cp SOURCE TARGET", Short: "Copy into or out of a sandbox", Args: exactly("SOURCE", "TARGET"),
		Long:    "One of SOURCE and TARGET is SANDBOX:/path, the other a local path, or - for stdin or stdout.",
		Example: "  weft sandbox cp data.csv $id:/workspace/data.csv\n  weft sandbox cp -r $id:/workspace ./out",
		RunE: func(c *cobra.Command, args []string) error {
			return a.cp(c.Context(), args[0], args[1], recursive)
		}}
	c.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy a directory")
	return c
}

// inSandbox splits SANDBOX:/path.
func inSandbox(s string) (id, p string, ok bool) {
	id, p, ok = strings.Cut(s, ":")
	return id, p, ok && schemas.CheckID("sandbox", id) == nil
}

func (a *app) cp(ctx context.Context, from, to string, recursive bool) error {
	id, p, out := inSandbox(from)
	if !out {
		var in bool
		if id, p, in = inSandbox(to); !in {
			return fault.New(fault.Invalid, "one of the two must be SANDBOX:/path, with the sandbox's id of %d characters", schemas.IDLen)
		}
	} else if _, _, both := inSandbox(to); both {
		return fault.New(fault.Invalid, "copy from sandbox to sandbox through a local path")
	}
	if !path.IsAbs(p) {
		return fault.New(fault.Invalid, "%q must be an absolute path in the sandbox", p)
	}
	return a.with(ctx, func(c *client.Client) error {
		done := copied{From: from, To: to}
		var err error
		switch {
		case out && recursive:
			done.Files, err = a.copyTreeOut(ctx, c, id, p, to)
		case out:
			done.Bytes, err = a.copyOut(ctx, c, id, p, to)
		case recursive:
			done.Files, err = a.copyTreeIn(ctx, c, id, p, from)
		default:
			done.Bytes, err = a.copyIn(ctx, c, id, p, from)
		}
		if err != nil {
			return err
		}
		if a.json && to != "-" {
			return a.printJSON(a.out, one{Schema, done})
		}
		return nil
	})
}

func (a *app) copyOut(ctx context.Context, c *client.Client, id, p, to string) (int64, error) {
	if to == "-" {
		return c.ReadFile(ctx, id, p, a.out)
	}
	if i, err := os.Stat(to); err == nil && i.IsDir() {
		to = filepath.Join(to, path.Base(p))
	}
	var n int64
	err := replaceLocal(to, func(w io.Writer) (err error) { n, err = c.ReadFile(ctx, id, p, w); return err })
	return n, err
}

// replaceLocal writes a local file so that it is there whole or not at all.
func replaceLocal(to string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".weft-*")
	if err != nil {
		return fault.Wrap(err, fault.Denied, "%s can't be written", to)
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func (a *app) copyIn(ctx context.Context, c *client.Client, id, p, from string) (int64, error) {
	if strings.HasSuffix(p, "/") {
		p += filepath.Base(from)
	}
	if from == "-" {
		return c.WriteFile(ctx, id, p, 0o644, a.in)
	}
	f, err := os.Open(from)
	if err != nil {
		return 0, fault.Wrap(err, fault.NotFound, "it can't be read")
	}
	defer func() { _ = f.Close() }()
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if i.IsDir() {
		return 0, fault.New(fault.Invalid, "%s is a directory; say -r", from)
	}
	return c.WriteFile(ctx, id, p, uint32(i.Mode().Perm()), f)
}

// copyTreeOut unpacks the tar that the sandbox's supervisor packs.
func (a *app) copyTreeOut(ctx context.Context, c *client.Client, id, p, to string) (int, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r, w := io.Pipe()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	defer func() { _ = r.Close() }()
	wg.Go(func() {
		_, err := c.SandboxFiles(id).TarOut(ctx, runtime.PathOf(p), w)
		_ = w.CloseWithError(err)
	})
	files, err := unpackTree(r, to)
	if err == nil {
		_, err = io.Copy(io.Discard, r) // tar pads its end, and what went wrong comes there
	}
	return files, err
}

func (a *app) copyTreeIn(ctx context.Context, c *client.Client, id, p, from string) (int, error) {
	r, w := io.Pipe()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() { _ = r.Close() }()
	wg.Go(func() { _ = w.CloseWithError(packTree(from, w, a.skipped)) })
	n, err := c.SandboxFiles(id).TarIn(ctx, runtime.PathOf(p), r)
	return int(n.Files), err
}

func (a *app) skipped(path, why string) { a.say("weft: %s is left out: %s", path, why) }
