package supervisor_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// soak says that what takes long is to be tested, too.
func soak() bool { return os.Getenv("WEFT_SOAK") == "1" }

func names(in []supervisor.FileInfo) (out []string) {
	for _, i := range in {
		out = append(out, string(i.Path))
	}
	return out
}

// pages lists all of a tree, so many entries at once.
func pages(t testing.TB, ctx context.Context, f *supervisor.Files, path string, q supervisor.FileQuery) (all []supervisor.FileInfo) {
	t.Helper()
	for {
		page, more, err := f.Entries(ctx, path, q)
		require.NoError(t, err)
		all = append(all, page...)
		if !more {
			return all
		}
		require.NotEmpty(t, page)
		q.After = page[len(page)-1].Path
	}
}

// tarOf makes a tar of headers; a regular file has what its Linkname says.
func tarOf(t testing.TB, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		body := ""
		if h.Typeflag == tar.TypeReg {
			body, h.Linkname = h.Linkname, ""
			h.Size = int64(len(body))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, body)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &b
}

func file(name, body string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: body, Mode: 0o644}
}

func TestFileTrees(t *testing.T) {
	b := newBox(t, withTmpfs("/other"))
	ctx := within(t, 5*minute)
	f := b.Files(as)
	text := func(path string) string {
		t.Helper()
		r, _, err := f.Read(ctx, path, 0, -1)
		require.NoError(t, err)
		defer r.Close()
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		return string(got)
	}
	code := func(err error) fault.Code { t.Helper(); return fault.CodeOf(err) }
	sh := func(script string) string {
		t.Helper()
		res := b.run(shell("set -e; " + script))
		require.Zero(t, res.Exit.Code, "%s: %s", script, res.Stderr)
		return string(res.Stdout)
	}

	t.Run("pages of a tree are in order and whole", func(t *testing.T) {
		sh(`mkdir -p /tmp/l/b/c /tmp/l/a /tmp/l/b.d; cd /tmp/l; touch z b/1 b/c/2 a/3 b.d/4; ln -s nowhere link; printf x >"$(printf 'odd\n\377')"; mkfifo pipe`)
		want := []string{"a", "a/3", "b", "b/1", "b/c", "b/c/2", "b.d", "b.d/4", "link", "odd\n\xff", "pipe", "z"}
		for _, limit := range []int{0, 1, 2, 5} {
			require.Equal(t, want, names(pages(t, ctx, f, "/tmp/l", supervisor.FileQuery{Limit: limit})), "%d a page", limit)
		}
		require.Equal(t, []string{"a", "b", "b.d", "link", "odd\n\xff", "pipe", "z"}, names(pages(t, ctx, f, "/tmp/l", supervisor.FileQuery{Depth: 1, Limit: 2})))
		require.Equal(t, []string{"a/3", "b/1", "b/c", "b.d/4"}, names(pages(t, ctx, f, "/tmp/l", supervisor.FileQuery{Depth: 2, Limit: 1, Glob: "*/*"})))
		one, err := f.Lstat(ctx, "/tmp/l/link")
		require.NoError(t, err)
		require.Equal(t, supervisor.Text("nowhere"), one.Target)
		_, err = f.Stat(ctx, "/tmp/l/link")
		require.Equal(t, fault.NotFound, code(err))
		var found []string
		n, err := f.Glob(ctx, "/tmp/l", supervisor.FileQuery{Glob: "**/{1,2,3}", Limit: 2}, func(p []supervisor.FileInfo) error { found = append(found, names(p)...); return nil })
		require.NoError(t, err)
		require.True(t, n.Truncated)
		require.Equal(t, []string{"a/3", "b/1"}, found)
		_, _, err = f.Entries(ctx, "/tmp/l", supervisor.FileQuery{After: "../x"})
		require.Equal(t, fault.Invalid, code(err))
		_, _, err = f.Entries(ctx, "/tmp/l/z", supervisor.FileQuery{})
		require.Equal(t, fault.Invalid, code(err))
	})

	t.Run("append, touch, chmod, write with options", func(t *testing.T) {
		_, err := f.Append(ctx, "/tmp/w/x/log", supervisor.WriteOptions{Mode: 0o600, Parents: true}, strings.NewReader("one\n"))
		require.NoError(t, err)
		info, err := f.Append(ctx, "/tmp/w/x/log", supervisor.WriteOptions{}, strings.NewReader("two\n"))
		require.NoError(t, err)
		require.EqualValues(t, 8, info.Size)
		require.Equal(t, "one\ntwo\n", text("/tmp/w/x/log"))
		_, err = f.WriteWith(ctx, "/tmp/w/x/log", supervisor.WriteOptions{Keep: true}, strings.NewReader("no"))
		require.Equal(t, fault.Conflict, code(err))
		info, err = f.WriteWith(ctx, "/tmp/w/x/log", supervisor.WriteOptions{}, strings.NewReader("three\n"))
		require.NoError(t, err)
		require.EqualValues(t, 0o600, info.Mode, "what it had")
		_, err = f.WriteWith(ctx, "/tmp/w/y/new", supervisor.WriteOptions{Parents: true}, strings.NewReader("n"))
		require.NoError(t, err)
		at := info.ModTime.Add(-3600e9)
		info, err = f.Touch(ctx, "/tmp/w/y/new", &at)
		require.NoError(t, err)
		require.True(t, at.Equal(info.ModTime))
		_, err = f.Touch(ctx, "/tmp/w/y/newer", nil)
		require.NoError(t, err)
		sh("ln -s /tmp/l/z /tmp/w/out; mkfifo /tmp/w/fifo; chmod 640 /tmp/l/z; chmod 000 /tmp/w/x")
		n, err := f.Chmod(ctx, "/tmp/w/x", 0o700, false)
		require.NoError(t, err)
		require.EqualValues(t, 1, n.Files)
		n, err = f.Chmod(ctx, "/tmp/w", 0o750, true)
		require.NoError(t, err)
		require.EqualValues(t, 7, n.Files)
		require.Equal(t, "750 640\n", sh("echo $(stat -c %a /tmp/w/y/new /tmp/l/z)"), "links lead nowhere")
		_, err = f.Chmod(ctx, "/usr", 0o777, false)
		require.Equal(t, fault.Denied, code(err))
		_, err = f.Append(ctx, "/tmp/w/fifo", supervisor.WriteOptions{}, strings.NewReader("x"))
		require.Equal(t, fault.Invalid, code(err))
	})

	t.Run("copy and move", func(t *testing.T) {
		sh(`mkdir -p /tmp/c/d/e; cd /tmp/c; echo 1 >d/one; echo 2 >d/e/two; ln -s ../one d/e/l; chmod 500 d/e; truncate -s 1G d/sparse; mkfifo d/p`)
		n, err := f.Copy(ctx, "/tmp/c/d", "/tmp/c/copy", supervisor.FileQuery{})
		require.NoError(t, err)
		require.Equal(t, supervisor.FileCount{Files: 3, Dirs: 2, Links: 1, Bytes: 4, Skipped: 1}, n, "holes are no bytes")
		require.Equal(t, "2\n", text("/tmp/c/copy/e/two"))
		require.Equal(t, "500 ../one\n", sh("cd /tmp/c/copy; echo $(stat -c %a e) $(readlink e/l)"))
		_, err = f.Copy(ctx, "/tmp/c/d", "/tmp/c/copy", supervisor.FileQuery{Keep: true})
		require.Equal(t, fault.Conflict, code(err))
		sh("chmod 700 /tmp/c/copy/e /tmp/c/d/e")
		n, err = f.Copy(ctx, "/tmp/c/d", "/tmp/c/d/inside", supervisor.FileQuery{})
		require.NoError(t, err, "into itself")
		require.EqualValues(t, 3, n.Files)
		_, err = f.Copy(ctx, "/tmp/c/d/one", "/tmp/c/d/one", supervisor.FileQuery{})
		require.Equal(t, fault.Invalid, code(err))
		_, err = f.Copy(ctx, "/tmp/c/d/p", "/tmp/c/p2", supervisor.FileQuery{})
		require.Equal(t, fault.Invalid, code(err))
		_, err = f.Move(ctx, "/tmp/c/d", "/other/d", supervisor.FileQuery{})
		require.Equal(t, fault.Conflict, code(err), "a FIFO can't be moved there")
		require.Equal(t, "1\n", text("/tmp/c/d/one"))
		sh("rm -r /other/d; rm /tmp/c/d/p /tmp/c/d/inside/p 2>/dev/null || true")
		n, err = f.Move(ctx, "/tmp/c/d", "/other/deep/d", supervisor.FileQuery{Parents: true})
		require.NoError(t, err)
		require.EqualValues(t, 6, n.Files)
		require.Equal(t, "2\n", text("/other/deep/d/e/two"))
		_, err = f.Stat(ctx, "/tmp/c/d")
		require.Equal(t, fault.NotFound, code(err))
		_, err = f.Move(ctx, "/other/deep/d/one", "/other/deep/d/e/two", supervisor.FileQuery{Keep: true})
		require.Equal(t, fault.Conflict, code(err))
		_, err = f.Move(ctx, "/other/deep/d/one", "/other/deep/d/e/two", supervisor.FileQuery{})
		require.NoError(t, err)
		require.Equal(t, "1\n", text("/other/deep/d/e/two"))
		n, err = f.RemoveTree(ctx, "/other/deep", true)
		require.NoError(t, err)
		require.EqualValues(t, 5, n.Dirs)
	})

	t.Run("tar out and in again", func(t *testing.T) {
		sh(`mkdir -p /tmp/t/a/b; cd /tmp/t; echo text >a/b/f; chmod 640 a/b/f; printf x >"a/$(printf '\377')"; ln -s b/f a/l; mkfifo a/p; chmod 550 a/b; touch -d 2001-02-03T04:05:06Z a/b/f`)
		var out bytes.Buffer
		n, err := f.TarOut(ctx, "/tmp/t", &out)
		require.NoError(t, err)
		require.Equal(t, supervisor.FileCount{Files: 2, Dirs: 2, Links: 1, Bytes: 6, Skipped: 1}, n)
		n, err = f.TarIn(ctx, "/tmp/t2/new", &out)
		require.NoError(t, err)
		require.Equal(t, supervisor.FileCount{Files: 2, Dirs: 2, Links: 1, Bytes: 6}, n)
		require.Equal(t, "text\n640 550 b/f 981173106\n", sh(`cd /tmp/t2/new/a; cat l; echo $(stat -c %a b/f b) $(readlink l) $(stat -c %Y b/f)`))
		_, err = f.TarIn(ctx, "/tmp/t2/new", tarOf(t, tar.Header{Typeflag: tar.TypeLink, Name: "a/hard", Linkname: "a/l2"}))
		require.Equal(t, fault.NotFound, code(err))
		_, err = f.TarIn(ctx, "/tmp/t2/new", tarOf(t, file("h/x", "body"), tar.Header{Typeflag: tar.TypeLink, Name: "h/y", Linkname: "h/x"}))
		require.NoError(t, err)
		require.Equal(t, "body", text("/tmp/t2/new/h/y"))
		out.Reset()
		_, err = f.TarOut(ctx, "/tmp/t/a/b/f", &out)
		require.NoError(t, err)
		h, err := tar.NewReader(&out).Next()
		require.NoError(t, err)
		require.Equal(t, "f", h.Name)
		_, err = f.TarOut(ctx, "/tmp/t/a/p", io.Discard)
		require.Equal(t, fault.Invalid, code(err))
	})

	t.Run("hostile tars", func(t *testing.T) {
		sh("mkdir -p /tmp/h/in /tmp/h/out; ln -s ../out /tmp/h/in/there; ln -s /tmp/h/out /tmp/h/in/abs; echo mine >/tmp/h/out/x")
		link := func(name, target string) tar.Header {
			return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
		}
		for name, c := range map[string][]tar.Header{
			"absolute":              {file("/tmp/h/out/x", "bad")},
			"up":                    {file("a/../../out/x", "bad")},
			"link up":               {link("l", "../out"), file("l/x", "bad")},
			"link absolute":         {link("l", "/tmp/h/out"), file("l/x", "bad")},
			"link up, in two steps": {link("d/e", "../.."), file("d/e/out/x", "bad")},
			"a link that is there":  {file("there/x", "bad")},
			"and an absolute one":   {file("abs/x", "bad")},
			"hard link up":          {{Typeflag: tar.TypeLink, Name: "l", Linkname: "../out/x"}},
			"hard link by a link":   {{Typeflag: tar.TypeLink, Name: "l", Linkname: "there/x"}},
			"device":                {{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}},
			"block device":          {{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}},
			"FIFO":                  {{Typeflag: tar.TypeFifo, Name: "p"}},
			"a directory as file":   {{Typeflag: tar.TypeDir, Name: "dd/"}, file("dd", "bad")},
			"no name":               {file(".", "bad")},
		} {
			_, err := f.TarIn(ctx, "/tmp/h/in", tarOf(t, c...))
			require.Contains(t, []fault.Code{fault.Invalid, fault.Conflict, fault.Denied}, code(err), "%s: %v", name, err)
		}
		_, err := f.TarIn(ctx, "/tmp/h/in", strings.NewReader(strings.Repeat("this is no tar ", 10_000)))
		require.Equal(t, fault.Invalid, code(err))
		whole := tarOf(t, file("half", strings.Repeat("x", 10_000)))
		_, err = f.TarIn(ctx, "/tmp/h/in", io.LimitReader(whole, 5000))
		require.Equal(t, fault.Invalid, code(err))
		n, err := f.TarIn(ctx, "/tmp/h/in", tarOf(t, link("d/up", "../d2/x"), tar.Header{Typeflag: tar.TypeReg, Name: "s", Mode: 0o6777, Linkname: "x"}))
		require.NoError(t, err)
		require.EqualValues(t, 1, n.Links)
		require.Equal(t, "777 mine x\n", sh("echo $(stat -c %a /tmp/h/in/s) $(cat /tmp/h/out/*) $(ls /tmp/h/out)"), "nothing else is there")
	})

	t.Run("a directory of many", func(t *testing.T) {
		many := 50_000
		if soak() {
			many = 1_000_000
		}
		at := time.Now()
		took := func(what string) { t.Logf("%s: %s", what, time.Since(at).Round(time.Millisecond)); at = time.Now() }
		sh(fmt.Sprintf("mkdir /tmp/many; cd /tmp/many; seq -f 'a-file-with-number-%%.0f' 1 %d | xargs touch", many))
		took("made")
		all := pages(t, ctx, f, "/tmp/many", supervisor.FileQuery{Depth: 1})
		took("listed")
		require.Len(t, all, many)
		require.True(t, slices.IsSortedFunc(all, func(a, b supervisor.FileInfo) int { return strings.Compare(string(a.Path), string(b.Path)) }))
		n, err := f.Search(ctx, "/tmp/many", supervisor.FileQuery{Pattern: "x"}, func([]supervisor.FileMatch) error { return nil })
		require.NoError(t, err)
		require.EqualValues(t, many, n.Files)
		took("searched")
		n, err = f.RemoveTree(ctx, "/tmp/many", true)
		require.NoError(t, err)
		took("removed")
		require.EqualValues(t, many, n.Files)
		u, err := b.Usage(ctx)
		require.NoError(t, err)
		require.Less(t, u.InitRSS, int64(64<<20))
	})

	t.Run("a large file costs no memory", func(t *testing.T) {
		in, out := int64(64<<20), int64(256<<20)
		if soak() {
			in, out = 512<<20, 1<<30
		}
		sh(fmt.Sprintf("truncate -s %d /tmp/large", out))
		r, _, err := f.Read(ctx, "/tmp/large", 0, -1)
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, out, n)
		info, err := f.Write(ctx, "/tmp/large", 0o644, io.LimitReader(zeros{}, in))
		require.NoError(t, err)
		require.Equal(t, in, info.Size)
		u, err := b.Usage(ctx)
		require.NoError(t, err)
		require.Less(t, u.InitRSS, int64(64<<20))
		require.NoError(t, f.Remove(ctx, "/tmp/large", false))
	})

	t.Run("10,000 levels", func(t *testing.T) {
		const levels = 10_000
		path := strings.TrimSuffix(strings.Repeat("d/", levels), "/")
		_, err := f.TarIn(ctx, "/tmp/deep", tarOf(t, tar.Header{Typeflag: tar.TypeDir, Name: path + "/"}, file(path+"/leaf", "needle\n")))
		require.NoError(t, err)
		all := pages(t, ctx, f, "/tmp/deep", supervisor.FileQuery{Glob: "**/leaf"})
		require.Equal(t, []string{path + "/leaf"}, names(all))
		hits := 0
		_, err = f.Search(ctx, "/tmp/deep", supervisor.FileQuery{Pattern: "needle"}, func(m []supervisor.FileMatch) error { hits += len(m); return nil })
		require.NoError(t, err)
		require.Equal(t, 1, hits)
		n, err := f.Copy(ctx, "/tmp/deep", "/other/deep", supervisor.FileQuery{})
		require.NoError(t, err)
		require.EqualValues(t, levels+1, n.Dirs)
		for _, top := range []string{"/tmp/deep", "/other/deep"} {
			n, err = f.RemoveTree(ctx, top, true)
			require.NoError(t, err)
			require.EqualValues(t, levels+1, n.Dirs)
		}
	})

	t.Run("long paths", func(t *testing.T) {
		top := strings.Repeat(strings.Repeat("n", 250)+"/", 160)
		headers := []tar.Header{{Typeflag: tar.TypeDir, Name: top}}
		for i := range 400 {
			headers = append(headers, tar.Header{Typeflag: tar.TypeSymlink, Name: top + strconv.Itoa(i), Linkname: "x"})
		}
		_, err := f.TarIn(ctx, "/tmp/long", tarOf(t, headers...))
		require.NoError(t, err)
		told := 0
		_, err = f.Glob(ctx, "/tmp/long", supervisor.FileQuery{Glob: "**"}, func(all []supervisor.FileInfo) error { told += len(all); return nil })
		require.NoError(t, err, "as many as fit into a message, and then the next")
		require.Equal(t, 160+400, told)
		_, err = f.RemoveTree(ctx, "/tmp/long", true)
		require.NoError(t, err)
	})

	t.Run("what /proc has of process 1", func(t *testing.T) {
		for _, p := range []string{"/proc/self/maps", "/proc/1/maps", "/proc/thread-self/maps", "/proc/self/environ", "/proc/self/root/etc", "/proc/self/cwd/etc", "/proc/self/exe"} {
			_, _, err := f.Read(ctx, p, 0, -1)
			require.Error(t, err, p)
		}
		for fd := range 32 {
			_, _, err := f.Read(ctx, fmt.Sprintf("/proc/self/fd/%d", fd), 0, -1)
			require.Error(t, err)
		}
		_, _, err := f.Entries(ctx, "/proc/self/fd", supervisor.FileQuery{Depth: 1})
		require.Equal(t, fault.Denied, code(err))
		_, err = f.Append(ctx, "/proc/self/timerslack_ns", supervisor.WriteOptions{}, strings.NewReader("1"))
		require.Equal(t, fault.Denied, code(err))
		_, _, err = f.Entries(ctx, "/proc", supervisor.FileQuery{Depth: 1})
		require.NoError(t, err)
	})

	t.Run("a FIFO keeps nobody waiting", func(t *testing.T) {
		sh("mkdir /tmp/f; cd /tmp/f; mkfifo p; echo needle >x")
		for _, err := range []error{
			func() error {
				_, err := f.Search(ctx, "/tmp/f/p", supervisor.FileQuery{Pattern: "x"}, func([]supervisor.FileMatch) error { return nil })
				return err
			}(),
			func() error { _, _, err := f.Entries(ctx, "/tmp/f/p", supervisor.FileQuery{}); return err }(),
			func() error {
				return f.Watch(ctx, "/tmp/f/p", true, 0, func([]supervisor.FileChange) error { return nil })
			}(),
		} {
			require.Equal(t, fault.Invalid, code(err), "%v", err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
