package demo

import (
	"archive/tar"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weftmesh/weft/pkg/fault"
)

//go:embed agents/*.py
var agents embed.FS

// What is taken of a code base at most.
const (
	maxFiles = 20_000
	maxBytes = 256 << 20
)

// largestText is the size over which the agents take a file for one without lines, as in measure.py.
const largestText = 1 << 20

// inventory is what was taken of a code base.
type inventory struct {
	Files []string // slash-separated, sorted
	Bytes int64
	Lines int
	Tops  []string       // the folders for which there will be an analyst
	Left  map[string]int // how many were left out, by reason
	How   string         // how the files were found
}

// take copies the code base at dir to the directory to, which it makes: so the audit is of one moment,
// whatever goes on in dir. without is left out, as the show's own output is.
func take(ctx context.Context, dir, to, without string) (inventory, error) {
	inv := inventory{Left: map[string]int{}}
	names, how, err := list(ctx, dir)
	if err != nil {
		return inv, err
	}
	inv.How = how
	from, err := os.OpenRoot(dir)
	if err != nil {
		return inv, err
	}
	defer func() { _ = from.Close() }()
	for _, name := range names {
		if ctx.Err() != nil {
			return inv, ctx.Err()
		}
		if full := filepath.Join(dir, name); full == without || strings.HasPrefix(full, without+string(filepath.Separator)) {
			continue
		}
		if err := inv.take(from, name, to); err != nil {
			return inv, err
		}
	}
	if len(inv.Files) == 0 {
		return inv, fault.New(fault.Invalid, "there is no file to audit in %s", dir)
	}
	inv.Tops = tops(inv.Files)
	return inv, nil
}

// take copies one file, or notes why not.
func (inv *inventory) take(from *os.Root, name, to string) error {
	st, err := from.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist): // deleted, but still in git's index
		return nil
	case err != nil:
		inv.Left["unreadable"]++
		return nil
	case st.IsDir():
		inv.Left["submodule"]++
		return nil
	case !st.Mode().IsRegular():
		inv.Left["symlink or special file"]++
		return nil
	case !plainName(name):
		inv.Left["name with control characters"]++
		return nil
	case len(inv.Files) >= maxFiles:
		inv.Left[fmt.Sprintf("over %d files", maxFiles)]++
		return nil
	case inv.Bytes+st.Size() > maxBytes:
		inv.Left[fmt.Sprintf("over %d MiB", maxBytes>>20)]++
		return nil
	}
	f, err := from.Open(name)
	if err != nil {
		inv.Left["unreadable"]++
		return nil
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		inv.Left["unreadable"]++
		return nil
	}
	at := filepath.Join(to, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(at, b, 0o644|st.Mode().Perm()&0o111); err != nil {
		return err
	}
	inv.Files = append(inv.Files, filepath.ToSlash(name))
	inv.Bytes += int64(len(b))
	inv.Lines += countLines(b)
	return nil
}

// leftOut says what was left out, empty if nothing.
func (inv *inventory) leftOut() string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(inv.Left)) {
		parts = append(parts, fmt.Sprintf("%d %s", inv.Left[why], why))
	}
	return strings.Join(parts, ", ")
}

// list names the files of dir, sorted: in a git checkout those that are tracked, and those that are new
// and not ignored; else all but .git and node_modules.
func list(ctx context.Context, dir string) (names []string, how string, err error) {
	git := exec.CommandContext(ctx, "git", "-C", dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if out, err := git.Output(); err == nil && len(out) > 0 {
		names = strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		slices.Sort(names)
		return slices.Compact(names), "git ls-files", nil
	}
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			if d != nil && d.IsDir() {
				return filepath.SkipDir // what can't be read can't be audited
			}
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		rel, err := filepath.Rel(dir, p)
		names = append(names, rel)
		return err
	})
	slices.Sort(names)
	return names, "a walk through the directory", err
}

// plainName takes names that can be shown, and that a label can have.
func plainName(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// tops gives the top folders as the planner finds them: those that are not hidden, and "." for the rest.
func tops(files []string) []string {
	seen := map[string]bool{}
	for _, f := range files {
		seen[topOf(f)] = true
	}
	rest := seen["."]
	delete(seen, ".")
	out := slices.Sorted(maps.Keys(seen))
	if rest {
		out = append(out, ".")
	}
	return out
}

func topOf(file string) string {
	top, _, ok := strings.Cut(file, "/")
	if !ok || strings.HasPrefix(top, ".") {
		return "."
	}
	return top
}

// isText reports whether the agents read lines in b.
func isText(b []byte) bool {
	return len(b) <= largestText && !bytes.Contains(b[:min(len(b), 8192)], []byte{0})
}

// countLines counts as the agents do, by a way of its own.
func countLines(b []byte) int {
	if !isText(b) {
		return 0
	}
	n := bytes.Count(b, []byte("\n"))
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return n
}

// writeTar writes the files of dir as tar, below prefix, and with withAgents the agents' programs.
func writeTar(w io.Writer, dir, prefix string, files []string, withAgents bool) error {
	t := tar.NewWriter(w)
	if withAgents {
		programs, err := fs.Glob(agents, "agents/*.py")
		if err != nil {
			return err
		}
		for _, p := range programs {
			b, err := agents.ReadFile(p)
			if err != nil {
				return err
			}
			if err := member(t, p, 0o644, time.Now(), b); err != nil {
				return err
			}
		}
	}
	for _, f := range files {
		at := filepath.Join(dir, filepath.FromSlash(f))
		st, err := os.Stat(at)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		if err := member(t, path.Join(prefix, f), st.Mode().Perm(), st.ModTime(), b); err != nil {
			return err
		}
	}
	return t.Close()
}

func member(t *tar.Writer, name string, mode fs.FileMode, at time.Time, b []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(b)), ModTime: at}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(b)
	return err
}
