package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/runtime"
)

func (a *app) fsMoveCommand() *cobra.Command {
	return a.fsFromTo("mv SANDBOX FROM TO", "Move a file or tree within a sandbox", "moved", (*client.SandboxFiles).Move)
}

func (a *app) fsCopyCommand() *cobra.Command {
	return a.fsFromTo("cp SANDBOX FROM TO", "Copy a file or tree within a sandbox", "copied", (*client.SandboxFiles).Copy)
}

func (a *app) fsFromTo(use, short, did string, do func(*client.SandboxFiles, context.Context, runtime.FileMove) (runtime.FileCount, error)) *cobra.Command {
	var r runtime.FileMove
	c := &cobra.Command{Use: use, Short: short, Args: exactly("SANDBOX", "FROM", "TO"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandboxFiles(c.Context(), args[0], args[1:], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				r.From, r.To = p[0], p[1]
				n, err := do(f, c.Context(), r)
				if err != nil {
					return err
				}
				return a.counted(n, did)
			})
		}}
	c.Flags().BoolVarP(&r.Parents, "parents", "p", false, "make missing directories above TO")
	c.Flags().BoolVar(&r.Keep, "keep", false, "fail if TO is there")
	return c
}

func (a *app) fsRemoveCommand() *cobra.Command {
	var recursive bool
	c := &cobra.Command{Use: "rm SANDBOX PATH", Short: "Remove a file or an empty directory, with -r a tree", Args: exactly("SANDBOX", "PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandboxFiles(c.Context(), args[0], args[1:], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				n, err := f.Remove(c.Context(), runtime.FileRemove{FilePath: p[0], Recursive: recursive})
				if err != nil {
					return err
				}
				return a.counted(n, "removed")
			})
		}}
	c.Flags().BoolVarP(&recursive, "recursive", "r", false, "a directory with all that is in it")
	return c
}

func (a *app) fsChmodCommand() *cobra.Command {
	var recursive bool
	c := &cobra.Command{Use: "chmod SANDBOX MODE PATH", Short: "Set permission bits, in octal", Args: exactly("SANDBOX", "MODE", "PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			var mode modeValue
			if err := mode.Set(args[1]); err != nil {
				return fault.New(fault.Invalid, "%v", err)
			}
			return a.onSandboxFiles(c.Context(), args[0], args[2:], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				n, err := f.Chmod(c.Context(), runtime.FileChmod{FilePath: p[0], Mode: uint32(mode), Recursive: recursive})
				if err != nil {
					return err
				}
				return a.counted(n, "mode "+strconv.FormatUint(uint64(mode), 8))
			})
		}}
	c.Flags().BoolVarP(&recursive, "recursive", "R", false, "of all below it, too; links are left out")
	return c
}

func (a *app) fsFindCommand() *cobra.Command {
	var r runtime.FileGlob
	c := &cobra.Command{Use: "find SANDBOX PATH GLOB", Short: "Print the paths of a tree that match", Args: exactly("SANDBOX", "PATH", "GLOB"),
		Example: "  weft sandbox files find $id /workspace '**/*.{go,py}'",
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandboxFiles(c.Context(), args[0], args[1:2], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				r.FilePath, r.Glob = p[0], args[2]
				var all []runtime.FileEntry
				n, err := f.Glob(c.Context(), r, func(e runtime.FileEntry) error {
					if a.json {
						all = append(all, e)
						return nil
					}
					_, err := fmt.Fprintln(a.out, cell(fsShown(e)))
					return err
				})
				if err != nil {
					return err
				}
				a.truncated(n)
				if a.json {
					return items(a, all, "", nil)
				}
				return nil
			})
		}}
	c.Flags().IntVar(&r.Limit, "limit", 0, "at most so many (default 10000)")
	return c
}

func (a *app) truncated(n runtime.FileCount) {
	if n.Truncated {
		a.say("weft: there is more; raise --limit or narrow what is looked for")
	}
}

func (a *app) fsGrepCommand() *cobra.Command {
	var r runtime.FileSearch
	c := &cobra.Command{Use: "grep SANDBOX PATTERN PATH", Short: "Print the lines of a tree's text files that match", Args: exactly("SANDBOX", "PATTERN", "PATH"),
		Example: "  weft sandbox files grep -C 2 $id 'def .*main' /workspace --glob '**/*.py'",
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandboxFiles(c.Context(), args[0], args[2:], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				r.FilePath, r.Pattern = p[0], args[1]
				var all []runtime.FileMatch
				n, err := f.Search(c.Context(), r, func(m runtime.FileMatch) error {
					if a.json {
						all = append(all, m)
					} else {
						a.showMatch(m)
					}
					return nil
				})
				if err != nil {
					return err
				}
				a.truncated(n)
				if a.json {
					return items(a, all, "", nil)
				}
				return nil
			})
		}}
	f := c.Flags()
	f.BoolVarP(&r.Literal, "fixed-strings", "F", false, "PATTERN is a text, no regular expression")
	f.BoolVarP(&r.IgnoreCase, "ignore-case", "i", false, "upper and lower case are the same")
	f.IntVarP(&r.Context, "context", "C", 0, "with so many lines before and after")
	f.StringVar(&r.Glob, "glob", "", "in files whose path matches only")
	f.IntVar(&r.Limit, "limit", 0, "at most so many matches (default 1000)")
	return c
}

func (a *app) showMatch(m runtime.FileMatch) {
	name := cell(m.Path)
	for i, l := range m.Before {
		fmt.Fprintf(a.out, "%s-%d-%s\n", name, m.Line-len(m.Before)+i, cell(l))
	}
	fmt.Fprintf(a.out, "%s:%d:%s\n", name, m.Line, cell(m.Text))
	for i, l := range m.After {
		fmt.Fprintf(a.out, "%s-%d-%s\n", name, m.Line+1+i, cell(l))
	}
	if len(m.Before)+len(m.After) > 0 {
		fmt.Fprintln(a.out, "--")
	}
}

func (a *app) fsReplaceCommand() *cobra.Command {
	var r runtime.FileReplace
	var paths []string
	c := &cobra.Command{Use: "replace SANDBOX PATTERN WITH PATH", Short: "Replace in a tree's text files", Args: exactly("SANDBOX", "PATTERN", "WITH", "PATH"),
		Long:    "Each file is changed whole or not at all. In WITH, $1 and ${name} are groups of PATTERN, $$ is a dollar.",
		Example: "  weft sandbox files replace --dry-run $id 'v(\\d+)' 'version $1' /workspace --glob '**/*.md'",
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandboxFiles(c.Context(), args[0], args[3:], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				r.FilePath, r.Pattern, r.With = p[0], args[1], args[2]
				for _, p := range paths {
					r.Paths = append(r.Paths, runtime.PathOf(p))
				}
				return a.fsReplace(c.Context(), f, r)
			})
		}}
	f := c.Flags()
	f.BoolVarP(&r.Literal, "fixed-strings", "F", false, "PATTERN and WITH are texts, no regular expression")
	f.BoolVarP(&r.IgnoreCase, "ignore-case", "i", false, "upper and lower case are the same")
	f.BoolVarP(&r.DryRun, "dry-run", "n", false, "only say what would be replaced")
	f.StringVar(&r.Glob, "glob", "", "in files whose path matches")
	f.StringArrayVar(&paths, "file", nil, "in this `file`, relative to PATH (repeatable)")
	return c
}

func (a *app) fsReplace(ctx context.Context, f *client.SandboxFiles, r runtime.FileReplace) error {
	var all []runtime.FileReplaced
	failed := 0
	_, err := f.Replace(ctx, r, func(d runtime.FileReplaced) error {
		if d.Code != "" {
			failed++
			a.say("weft: %s", cell(d.Message))
		}
		all = append(all, d)
		return nil
	})
	if err != nil {
		return err
	}
	if err := items(a, all, "replaced path", func(d runtime.FileReplaced) []string { return []string{strconv.Itoa(d.Count), d.Path} }); err != nil {
		return err
	}
	if failed > 0 {
		return fault.New(fault.Conflict, "%s stayed as it was", plural(failed, "file"))
	}
	return nil
}

func (a *app) fsWatchCommand() *cobra.Command {
	var r runtime.FileWatch
	var window time.Duration
	c := &cobra.Command{Use: "watch SANDBOX PATH", Short: "Print what happens in a directory, until Ctrl-C", Args: exactly("SANDBOX", "PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandboxFiles(c.Context(), args[0], args[1:], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				r.FilePath, r.WindowMS = p[0], window.Milliseconds()
				return f.Watch(c.Context(), r, a.showChange)
			})
		}}
	c.Flags().BoolVarP(&r.Recursive, "recursive", "R", false, "and in all below it")
	c.Flags().DurationVar(&window, "window", 0, "in which changes of a path are put together (default 50ms)")
	return c
}

func (a *app) showChange(c runtime.FileChange) error {
	if a.json {
		return a.event(c.Kind, c)
	}
	if c.Kind == "ready" {
		a.progress("watching")
		return nil
	}
	path := c.Path
	if c.Dir {
		path += "/"
	}
	if c.From != nil {
		path = c.From.Path + " -> " + path
	}
	_, err := fmt.Fprintf(a.out, "%-8s %s\n", c.Kind, cell(path))
	return err
}

func (a *app) fsTarCommand() *cobra.Command {
	return &cobra.Command{Use: "tar SANDBOX PATH [LOCAL]", Short: "Copy a tree as tar to stdout or a local file", Args: between(2, "SANDBOX", "PATH", "LOCAL"),
		Example: "  weft sandbox files tar $id /workspace | tar t",
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandboxFiles(c.Context(), args[0], args[1:2], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				if len(args) < 3 || args[2] == "-" {
					_, err := f.TarOut(c.Context(), p[0], a.out)
					return err
				}
				var n runtime.FileCount
				err := replaceLocal(args[2], func(w io.Writer) (err error) { n, err = f.TarOut(c.Context(), p[0], w); return err })
				if err != nil {
					return err
				}
				return a.counted(n, "packed")
			})
		}}
}

func (a *app) fsUntarCommand() *cobra.Command {
	return &cobra.Command{Use: "untar SANDBOX PATH [LOCAL]", Short: "Unpack a tar from stdin or a local file below a directory", Args: between(2, "SANDBOX", "PATH", "LOCAL"),
		Long: "A tar with names or links that lead out of the directory, or with devices, is refused.",
		RunE: func(c *cobra.Command, args []string) error {
			in, done, err := a.input(args[2:])
			if err != nil {
				return err
			}
			defer done()
			return a.onSandboxFiles(c.Context(), args[0], args[1:2], func(f *client.SandboxFiles, p []runtime.FilePath) error {
				n, err := f.TarIn(c.Context(), p[0], in)
				if err != nil {
					return err
				}
				return a.counted(n, "unpacked")
			})
		}}
}
