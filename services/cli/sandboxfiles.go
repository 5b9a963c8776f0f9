package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

func (a *app) sandboxFilesCommand() *cobra.Command {
	all := []*cobra.Command{a.fsListCommand(), a.fsCatCommand(), a.fsPutCommand(), a.fsAppendCommand(), a.fsStatCommand(), a.fsMkdirCommand(),
		a.fsTouchCommand(), a.fsMoveCommand(), a.fsCopyCommand(), a.fsRemoveCommand(), a.fsChmodCommand(), a.fsFindCommand(),
		a.fsGrepCommand(), a.fsReplaceCommand(), a.fsWatchCommand(), a.fsTarCommand(), a.fsUntarCommand()}
	for _, c := range all {
		c.ValidArgsFunction = a.complete(sandboxNames(workspace.SandboxRunning))
	}
	c := parent("files", "", "A sandbox's files, without a command in it", all...)
	c.Aliases = []string{"fs"}
	c.Long = "These commands see the files from inside the sandbox, with the permissions of what runs in it. Paths are\nabsolute. What is found in a tree is named relative to its top."
	return c
}

// onSandboxFiles does something with the files of a sandbox. The paths must be absolute.
func (a *app) onSandboxFiles(ctx context.Context, id string, paths []string, do func(*client.SandboxFiles, []runtime.FilePath) error) error {
	all := make([]runtime.FilePath, len(paths))
	for i, p := range paths {
		if !strings.HasPrefix(p, "/") {
			return fault.New(fault.Invalid, "%q must be an absolute path in the sandbox", p)
		}
		all[i] = runtime.PathOf(p)
	}
	return a.with(ctx, func(c *client.Client) error { return do(c.SandboxFiles(id), all) })
}

// counted prints what an operation did.
func (a *app) counted(n runtime.FileCount, did string) error {
	var parts []string
	for _, p := range []struct {
		n    int64
		what string
	}{{n.Files, "file"}, {n.Dirs, "directory"}, {n.Links, "link"}} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.what)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, strings.Replace(p.what+"s", "ys", "ies", 1)))
		}
	}
	if len(parts) == 0 {
		return a.done(n, "%s", did)
	}
	if n.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d skipped", n.Skipped))
	}
	return a.done(n, "%s: %s", did, strings.Join(parts, ", "))
}

func (a *app) fsListCommand() *cobra.Command {
	r := runtime.FileList{}
	var recursive, long bool
	var limit int
	c := &cobra.Command{Use: "ls SANDBOX [PATH]", Aliases: []string{"list"}, Short: "List a directory or tree", Args: between(1, "SANDBOX", "PATH"),
		Example: "  weft sandbox files ls $id /workspace\n  weft sandbox fs ls -Rl $id /workspace --glob '**/*.py'",
		RunE: func(c *cobra.Command, args []string) error {
			if recursive && r.Depth == 0 {
				r.Depth = -1
			}
			paths := append(args[1:], "/workspace")[:1]
			return a.onSandboxFiles(c.Context(), args[0], paths, func(f *client.SandboxFiles, p []runtime.FilePath) error {
				r.FilePath = p[0]
				return a.fsList(c.Context(), f, r, limit, long)
			})
		}}
	c.Flags().BoolVarP(&recursive, "recursive", "R", false, "the whole tree")
	c.Flags().BoolVarP(&long, "long", "l", false, "with mode, owner, size and time")
	c.Flags().IntVar(&r.Depth, "depth", 0, "so many levels of it")
	c.Flags().StringVar(&r.Glob, "glob", "", "what matches only; ** matches directories")
	c.Flags().IntVar(&limit, "limit", 0, "at most so many (default all)")
	return c
}

func (a *app) fsList(ctx context.Context, f *client.SandboxFiles, r runtime.FileList, limit int, long bool) error {
	if a.json || long {
		var all []runtime.FileEntry
		err := f.List(ctx, r, limit, func(e runtime.FileEntry) error { all = append(all, e); return nil })
		if err != nil {
			return err
		}
		return items(a, all, "mode uid gid size modified path", fsRow)
	}
	return f.List(ctx, r, limit, func(e runtime.FileEntry) error {
		_, err := fmt.Fprintln(a.out, cell(fsShown(e)))
		return err
	})
}

func fsShown(e runtime.FileEntry) string { return fileShown(e.Type, e.Path, e.Target) }

func fsRow(e runtime.FileEntry) []string {
	return []string{fileMode(e.Type, e.Mode), fmt.Sprint(e.UID), fmt.Sprint(e.GID), size(e.Size), e.ModTime.Local().Format("2006-01-02 15:04"), fsShown(e)}
}

func (a *app) fsCatCommand() *cobra.Command {
	var r runtime.FileRead
	var length int64
	c := &cobra.Command{Use: "cat SANDBOX PATH", Short: "Print a file, or a part of it", Args: exactly("SANDBOX", "PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("length") {
				r.Length = &length
			}
			return a.onSandboxFiles(c.Context(), args[0], args[1:], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				r.FilePath = p[0]
				_, err := f.Read(c.Context(), r, a.out)
				return err
			})
		}}
	c.Flags().Int64Var(&r.Offset, "offset", 0, "from this byte on")
	c.Flags().Int64Var(&length, "length", 0, "so many bytes (default to the end)")
	return c
}

func (a *app) fsPutCommand() *cobra.Command {
	c := a.fsSend("put SANDBOX PATH [LOCAL]", "Replace a file by what comes from stdin or a local file, whole or not at all", "keep",
		func(ctx context.Context, f *client.SandboxFiles, w runtime.FileWrite, r io.Reader) (runtime.FileEntry, error) {
			return f.Write(ctx, w, r)
		})
	c.Example = "  echo hello | weft sandbox files put $id /workspace/greeting\n  weft sandbox fs put --parents $id /workspace/a/b.csv data.csv"
	return c
}

func (a *app) fsAppendCommand() *cobra.Command {
	return a.fsSend("append SANDBOX PATH [LOCAL]", "Add to a file what comes from stdin or a local file", "",
		func(ctx context.Context, f *client.SandboxFiles, w runtime.FileWrite, r io.Reader) (runtime.FileEntry, error) {
			return f.Append(ctx, w, r)
		})
}

// input is the local file that is named, or stdin.
func (a *app) input(local []string) (in io.Reader, done func(), err error) {
	if len(local) == 0 || local[0] == "-" {
		return a.in, func() {}, nil
	}
	f, err := os.Open(local[0])
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.NotFound, "it can't be read")
	}
	return f, func() { _ = f.Close() }, nil
}

func (a *app) fsSend(use, short, keep string, send func(context.Context, *client.SandboxFiles, runtime.FileWrite, io.Reader) (runtime.FileEntry, error)) *cobra.Command {
	var w runtime.FileWrite
	var mode modeValue
	c := &cobra.Command{Use: use, Short: short, Args: between(2, "SANDBOX", "PATH", "LOCAL"),
		RunE: func(c *cobra.Command, args []string) error {
			in, done, err := a.input(args[2:])
			if err != nil {
				return err
			}
			defer done()
			return a.onSandboxFiles(c.Context(), args[0], args[1:2], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				w.FilePath, w.Mode = p[0], uint32(mode)
				e, err := send(c.Context(), f, w, in)
				if err != nil {
					return err
				}
				return a.done(e, "%s has %s", args[1], size(e.Size))
			})
		}}
	c.Flags().VarP(&mode, "mode", "m", "its permission bits in octal (default as it has, 0644 for a new one)")
	c.Flags().BoolVarP(&w.Parents, "parents", "p", false, "make missing directories above")
	if keep != "" {
		c.Flags().BoolVar(&w.Keep, keep, false, "fail if the file is there")
	}
	return c
}

// modeValue is a flag of permission bits.
type modeValue uint32

func (m *modeValue) String() string { return "" }
func (m *modeValue) Type() string   { return "octal" }
func (m *modeValue) Set(s string) error {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o1777 {
		return fmt.Errorf("%q is no mode: give octal digits, as 640", s)
	}
	*m = modeValue(n)
	return nil
}

func (a *app) fsStatCommand() *cobra.Command {
	var noFollow bool
	c := &cobra.Command{Use: "stat SANDBOX PATH", Short: "Describe a file", Args: exactly("SANDBOX", "PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandboxFiles(c.Context(), args[0], args[1:], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				e, err := f.Stat(c.Context(), runtime.FileStat{FilePath: p[0], NoFollow: noFollow})
				if err != nil {
					return err
				}
				return a.item(e, func(w io.Writer) {
					fields(w, "path", fsShown(e), "type", e.Type, "size", fmt.Sprint(e.Size), "mode", fileMode(e.Type, e.Mode), "uid", fmt.Sprint(e.UID), "gid", fmt.Sprint(e.GID), "modified", clock(&e.ModTime))
				})
			})
		}}
	c.Flags().BoolVar(&noFollow, "no-follow", false, "a link itself")
	return c
}

func (a *app) fsMkdirCommand() *cobra.Command {
	var r runtime.FileMkdir
	var mode modeValue
	c := &cobra.Command{Use: "mkdir SANDBOX PATH", Short: "Make a directory", Args: exactly("SANDBOX", "PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandboxFiles(c.Context(), args[0], args[1:], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				r.FilePath, r.Mode = p[0], uint32(mode)
				if err := f.Mkdir(c.Context(), r); err != nil {
					return err
				}
				return a.done(p[0], "%s is there", args[1])
			})
		}}
	c.Flags().VarP(&mode, "mode", "m", "its permission bits in octal (default 755)")
	c.Flags().BoolVarP(&r.Parents, "parents", "p", false, "those above it, too; one that is there is no error")
	return c
}

func (a *app) fsTouchCommand() *cobra.Command {
	return &cobra.Command{Use: "touch SANDBOX PATH", Short: "Make a file, or set its time to now", Args: exactly("SANDBOX", "PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandboxFiles(c.Context(), args[0], args[1:], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				e, err := f.Touch(c.Context(), p[0], nil)
				if err != nil {
					return err
				}
				return a.done(e, "%s is touched", args[1])
			})
		}}
}
