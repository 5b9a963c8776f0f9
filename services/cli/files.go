package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/filesystem"
)

func (a *app) filesCommand() *cobra.Command {
	rm := &cobra.Command{Use: "rm PATH...", Short: "Remove files or trees", Args: oneOrMore("PATH"),
		RunE: func(c *cobra.Command, args []string) error { return a.filesRemove(c.Context(), args) }}
	var snapshot string
	cat := &cobra.Command{Use: "cat PATH...", Short: "Print files", Args: oneOrMore("PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(cl *client.Client) error {
				for _, p := range args {
					if _, err := cl.GetFile(c.Context(), filesystem.GetRequest{Path: remote(p), Snapshot: snapshot}, a.out); err != nil {
						return err
					}
				}
				return nil
			})
		}}
	cat.Flags().StringVar(&snapshot, "snapshot", "", "of this snapshot")
	c := parent("files", groupHave, "A workspace's files", a.filesListCommand(), cat, a.filesGetCommand(), a.filesPutCommand(), rm)
	c.Long = "These commands work on the head of a workspace's files: what a new task starts from. Paths are\nrelative to it; a leading / is the same."
	return c
}

// remote is a path as the service takes it: relative, clean, slash-separated; "" is the top.
func remote(p string) string {
	p = strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(p)), "/")
	return p
}

type filesList struct {
	path, snapshot  string
	recursive, long bool
	limit           int
}

func (a *app) filesListCommand() *cobra.Command {
	var o filesList
	c := &cobra.Command{Use: "ls [PATH]", Aliases: []string{"list"}, Short: "List a directory", Args: between(0, "PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.path = remote(args[0])
			}
			return a.filesList(c.Context(), o)
		}}
	f := c.Flags()
	f.BoolVarP(&o.recursive, "recursive", "R", false, "the whole tree")
	f.BoolVarP(&o.long, "long", "l", false, "with mode, size and time")
	f.StringVar(&o.snapshot, "snapshot", "", "of this snapshot")
	f.IntVar(&o.limit, "limit", 0, "at most so many (default all)")
	return c
}

func (a *app) filesList(ctx context.Context, o filesList) error {
	return a.with(ctx, func(c *client.Client) error {
		es, err := c.Files(ctx, filesystem.ListRequest{Path: o.path, Snapshot: o.snapshot, Recursive: o.recursive}, o.limit)
		if err != nil {
			return err
		}
		if a.json || o.long {
			return items(a, es, "mode size modified path", func(e filesystem.Entry) []string {
				return []string{fileMode(e.Type, e.Mode), size(e.Size), e.MTime.Local().Format("2006-01-02 15:04"), shown(e)}
			})
		}
		for _, e := range es {
			fmt.Fprintln(a.out, cell(shown(e)))
		}
		return nil
	})
}

func shown(e filesystem.Entry) string { return fileShown(e.Type, e.Path, e.Target) }

// fileMode is a mode as ls shows it.
func fileMode(kind string, bits uint32) string {
	m := fs.FileMode(bits & 0o777)
	switch kind {
	case "dir":
		m |= fs.ModeDir
	case "symlink":
		m |= fs.ModeSymlink
	case "other":
		m |= fs.ModeIrregular
	}
	return m.String()
}

// fileShown is a path that says of what kind it is.
func fileShown(kind, path, target string) string {
	switch kind {
	case "dir":
		return path + "/"
	case "symlink":
		return path + " -> " + target
	}
	return path
}

type filesGet struct {
	path, to, snapshot string
	tar                bool
}

func (a *app) filesGetCommand() *cobra.Command {
	var o filesGet
	c := &cobra.Command{Use: "get PATH [LOCAL]", Short: "Copy a file or a tree to this machine", Args: between(1, "PATH", "LOCAL"),
		Example: "  weft files get report.md\n  weft files get / ./all\n  weft files get --tar src - | tar t",
		RunE: func(c *cobra.Command, args []string) error {
			o.path, o.to = remote(args[0]), path.Base(remote(args[0]))
			if len(args) == 2 {
				o.to = args[1]
			} else if o.path == "" {
				return fault.New(fault.Invalid, "say where the whole tree goes: weft files get / LOCAL")
			}
			return a.filesGet(c.Context(), o)
		}}
	c.Flags().StringVar(&o.snapshot, "snapshot", "", "of this snapshot")
	c.Flags().BoolVar(&o.tar, "tar", false, "keep a tree as one tar; - is stdout")
	return c
}

func (a *app) filesGet(ctx context.Context, o filesGet) error {
	return a.with(ctx, func(c *client.Client) error {
		r := filesystem.GetRequest{Path: o.path, Snapshot: o.snapshot}
		e := filesystem.Entry{Type: "dir"}
		if o.path != "" {
			var err error
			if e, err = c.StatFile(ctx, r); err != nil {
				return err
			}
		}
		if o.to == "-" {
			if e.Type == "dir" && !o.tar {
				return fault.New(fault.Invalid, "%s is a directory; say --tar to print it as tar", o.path)
			}
			_, err := c.GetFile(ctx, r, a.out)
			return err
		}
		done := copied{From: o.path, To: o.to}
		var err error
		if e.Type == "dir" && !o.tar {
			done.Files, err = getTree(ctx, c, r, o.to)
		} else {
			err = replaceLocal(o.to, func(w io.Writer) error { _, err := c.GetFile(ctx, r, w); return err })
			done.Files, done.Bytes = 1, e.Size
		}
		if err != nil {
			return err
		}
		return a.done(done, "%s copied to %s", plural(done.Files, "file"), o.to)
	})
}

// getTree unpacks a tree while it comes.
func getTree(ctx context.Context, c *client.Client, r filesystem.GetRequest, to string) (int, error) {
	pr, pw := io.Pipe()
	got := make(chan error, 1)
	go func() {
		_, err := c.GetFile(ctx, r, pw)
		_ = pw.CloseWithError(err)
		got <- err
	}()
	n, err := unpackTree(pr, to)
	if err == nil {
		_, err = io.Copy(io.Discard, pr) // the padding at a tar's end
	}
	_ = pr.CloseWithError(err)
	if e := <-got; err == nil {
		err = e
	}
	return n, err
}

type filesPut struct {
	from string
	filesystem.PutRequest
}

func (a *app) filesPutCommand() *cobra.Command {
	var o filesPut
	c := &cobra.Command{Use: "put LOCAL [PATH]", Short: "Copy a file or a tree into the workspace", Args: between(1, "LOCAL", "PATH"),
		Long: "put makes a local file, a directory, or stdin (-) part of the workspace's head, as one change.",
		Example: `  weft files put report.md
  weft files put ./project src --replace
  tar c . | weft files put - src --tar`,
		RunE: func(c *cobra.Command, args []string) error {
			o.from = args[0]
			switch {
			case len(args) == 2:
				o.Path = remote(args[1])
			case o.from == "-" && !o.Tar:
				return fault.New(fault.Invalid, "say where stdin goes: weft files put - PATH")
			case o.from != "-":
				abs, err := filepath.Abs(o.from)
				if err != nil {
					return err
				}
				o.Path = remote(filepath.Base(abs))
			}
			return a.filesPut(c.Context(), o)
		}}
	f := c.Flags()
	f.BoolVar(&o.Tar, "tar", false, "LOCAL is a tar (or - a tar from stdin): unpack it there")
	f.BoolVar(&o.Replace, "replace", false, "of a tree: remove what is not in it")
	f.StringVar(&o.IfParent, "if-parent", "", "only if the head is still this snapshot")
	return c
}

func (a *app) filesPut(ctx context.Context, o filesPut) error {
	return a.with(ctx, func(c *client.Client) error {
		r, err := a.source(&o)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		rep, err := c.PutFile(ctx, o.PutRequest, r)
		if err != nil {
			return err
		}
		return a.done(rep, "the head is now snapshot %s: %s, %s", rep.Snapshot, plural(rep.Files, "file"), size(rep.Bytes))
	})
}

// source opens what is to be put; a directory is packed while it is sent.
func (a *app) source(o *filesPut) (io.ReadCloser, error) {
	if o.from == "-" {
		return io.NopCloser(a.in), nil
	}
	f, err := os.Open(o.from)
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, "it can't be read")
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	if !info.IsDir() {
		o.Mode = uint32(info.Mode().Perm())
		return f, nil
	}
	_ = f.Close()
	o.Tar = true
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = pw.CloseWithError(packTree(o.from, pw, a.skipped))
	}()
	return waitCloser{pr, done}, nil
}

// waitCloser waits for the goroutine at the other end of a pipe.
type waitCloser struct {
	*io.PipeReader
	done <-chan struct{}
}

func (w waitCloser) Close() error {
	err := w.PipeReader.Close()
	<-w.done
	return err
}

func (a *app) filesRemove(ctx context.Context, paths []string) error {
	return a.with(ctx, func(c *client.Client) error {
		var rep filesystem.PutReply
		for _, p := range paths {
			p = remote(p)
			if p == "" {
				return fault.New(fault.Invalid, "that would remove every file; name what is to go")
			}
			var err error
			if rep, err = c.RemoveFile(ctx, p); err != nil {
				return fault.Wrap(err, fault.CodeOf(err), "%s", p)
			}
		}
		return a.done(rep, "the head is now snapshot %s: %s, %s", rep.Snapshot, plural(rep.Files, "file"), size(rep.Bytes))
	})
}
