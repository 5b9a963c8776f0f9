package supervisor_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

func TestFileSearchAndReplace(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 3*time.Minute)
	f := b.Files(as)
	sh := func(script string) string {
		t.Helper()
		res := b.run(shell("set -e; " + script))
		require.Zero(t, res.Exit.Code, "%s: %s", script, res.Stderr)
		return string(res.Stdout)
	}
	search := func(path string, q supervisor.FileQuery) (out []supervisor.FileMatch, n supervisor.FileCount) {
		t.Helper()
		n, err := f.Search(ctx, path, q, func(m []supervisor.FileMatch) error { out = append(out, m...); return nil })
		require.NoError(t, err)
		return out, n
	}
	replace := func(q supervisor.FileQuery) (out []supervisor.Replaced, n supervisor.FileCount) {
		t.Helper()
		n, err := f.Replace(ctx, "/tmp/s", q, func(r []supervisor.Replaced) error { out = append(out, r...); return nil })
		require.NoError(t, err)
		return out, n
	}
	sh(`mkdir -p /tmp/s/src/deep; cd /tmp/s; printf 'one\ntwo needle\nthree\nNEEDLE four\nfive' >src/a.go; seq 1 9 >src/deep/n.txt; printf 'needle\0' >bin; mkfifo p; ln -s /etc etc; ln -s src/a.go l; truncate -s 100M big`)

	t.Run("lines, with what stands around", func(t *testing.T) {
		m, n := search("/tmp/s", supervisor.FileQuery{Pattern: "needle", Context: 1})
		require.Equal(t, []supervisor.FileMatch{{Path: "src/a.go", Line: 2, Column: 5, Text: "two needle", Before: supervisor.Texts("one"), After: supervisor.Texts("three")}}, m)
		require.Equal(t, supervisor.FileCount{Files: 2, Matches: 1, Skipped: 2}, n, "a binary file and a large one are skipped, links not followed")
		m, _ = search("/tmp/s", supervisor.FileQuery{Pattern: "needle", IgnoreCase: true, Glob: "**/*.go"})
		require.Len(t, m, 2)
		m, _ = search("/tmp/s/src/deep", supervisor.FileQuery{Pattern: "^[45]$", Context: 2})
		require.Equal(t, []supervisor.FileMatch{
			{Path: "n.txt", Line: 4, Column: 1, Text: "4", Before: supervisor.Texts("2", "3"), After: supervisor.Texts("5", "6")},
			{Path: "n.txt", Line: 5, Column: 1, Text: "5", Before: supervisor.Texts("3", "4"), After: supervisor.Texts("6", "7")}}, m)
		m, _ = search("/tmp/s/src/a.go", supervisor.FileQuery{Pattern: "E.D", Literal: true})
		require.Empty(t, m)
		m, n = search("/tmp/s", supervisor.FileQuery{Pattern: ".", Limit: 3})
		require.Len(t, m, 3)
		require.True(t, n.Truncated)
		for _, q := range []supervisor.FileQuery{{Pattern: ""}, {Pattern: "("}, {Pattern: "x", Context: 1000}, {Pattern: "x", Glob: "[", Limit: 1}, {Pattern: strings.Repeat("x", 5000)}, {Pattern: "x", Limit: -1}} {
			_, err := f.Search(ctx, "/tmp/s", q, func([]supervisor.FileMatch) error { return nil })
			require.Equal(t, fault.Invalid, fault.CodeOf(err), "%+v", q)
		}
	})
	t.Run("a line without end, and very many matches", func(t *testing.T) {
		sh(`mkdir /tmp/long; head -c 3000000 /dev/zero | tr '\0' x >/tmp/long/one; yes needle | head -n 20000 >/tmp/long/many`)
		m, n := search("/tmp/long", supervisor.FileQuery{Pattern: "x", Context: 3, Glob: "one"})
		require.NotEmpty(t, m)
		require.LessOrEqual(t, len(m[0].Text), 1024)
		require.Equal(t, 1, m[len(m)-1].Line)
		m, n = search("/tmp/long", supervisor.FileQuery{Pattern: "needle", Context: 1, Limit: wire.MaxMatches})
		require.Len(t, m, wire.MaxMatches)
		require.True(t, n.Truncated)
	})
	t.Run("replace, dry and for good", func(t *testing.T) {
		sh("chmod 640 /tmp/s/src/a.go")
		q := supervisor.FileQuery{Pattern: `(?i)(needle) ?(\w*)`, With: "<$2 ${1}$$>", Glob: "**"}
		q.DryRun = true
		r, n := replace(q)
		require.Equal(t, []supervisor.Replaced{{Path: "src/a.go", Count: 2}}, r)
		require.EqualValues(t, 2, n.Matches)
		require.Contains(t, sh("cat /tmp/s/src/a.go"), "two needle\n")
		q.DryRun = false
		r, _ = replace(q)
		require.Equal(t, []supervisor.Replaced{{Path: "src/a.go", Count: 2}}, r)
		require.Equal(t, "one\ntwo < needle$>\nthree\n<four NEEDLE$>\nfive640\n", sh("cat /tmp/s/src/a.go; stat -c %a /tmp/s/src/a.go"))
		r, n = replace(supervisor.FileQuery{Pattern: "$>", With: "$1", Literal: true, Paths: supervisor.Texts("src/a.go", "l", "etc/passwd", "none", "p", "bin")})
		require.EqualValues(t, 1, n.Files)
		require.Equal(t, 2, r[0].Count)
		for i, code := range []fault.Code{fault.Invalid, fault.Invalid, fault.NotFound, fault.Invalid, fault.Invalid} {
			require.NotNil(t, r[i+1].Error)
			require.Equal(t, code, r[i+1].Error.Code, "%+v %s", r[i+1], r[i+1].Error.Message)
		}
		require.Equal(t, "two < needle$1\n", sh("sed -n 2p /tmp/s/src/a.go"))
		sh("cd /tmp/s; head -c 100000 /dev/zero | tr '\\0' x >grow")
		r, _ = replace(supervisor.FileQuery{Pattern: "(x+)", With: strings.Repeat("$1", 1000), Paths: supervisor.Texts("grow")})
		require.Equal(t, fault.Exhausted, r[0].Error.Code)
		for _, q := range []supervisor.FileQuery{{Pattern: "x"}, {Pattern: "x", With: "$1", Glob: "**"}, {Pattern: "x", Paths: supervisor.Texts("../x")}, {Pattern: "x", Paths: supervisor.Texts("/etc/passwd")}} {
			_, err := f.Replace(ctx, "/tmp/s", q, func([]supervisor.Replaced) error { return nil })
			require.Equal(t, fault.Invalid, fault.CodeOf(err), "%+v", q)
		}
		require.Empty(t, sh("find /tmp/s -name '.weft-*'"))
	})
	t.Run("whoever leaves makes room", func(t *testing.T) {
		sh("mkdir /tmp/busy; cd /tmp/busy; seq 1 2000 | xargs touch")
		sh("yes 'what is found at once, and nowhere else' | head -n 3000 >/tmp/aaa")
		var wg sync.WaitGroup
		for range 10 { // more than there are places; each would go on through /usr
			wg.Go(func() {
				short, cancel := context.WithCancel(ctx)
				defer cancel()
				found := 0
				_, _ = f.Search(short, "/", supervisor.FileQuery{Pattern: "found at once", Glob: "{tmp/aaa,usr/**}", Limit: wire.MaxMatches}, func(m []supervisor.FileMatch) error {
					found += len(m)
					cancel()
					return nil
				})
				assert.Positive(t, found)
			})
		}
		wg.Wait()
		n, err := f.RemoveTree(ctx, "/tmp/busy", true)
		require.NoError(t, err)
		require.EqualValues(t, 2000, n.Files)
	})
}

// watcher collects what a watch tells.
type watcher struct {
	mu   sync.Mutex
	seen []supervisor.FileChange
	end  chan error
	stop context.CancelFunc
	hold sync.Mutex // held: it takes nothing
}

func watch(t testing.TB, ctx context.Context, f *supervisor.Files, path string) *watcher {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{end: make(chan error, 1), stop: stop}
	ready := make(chan struct{})
	go func() {
		w.end <- f.Watch(ctx, path, true, 0, func(c []supervisor.FileChange) error {
			w.hold.Lock()
			defer w.hold.Unlock()
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.seen) == 0 && len(c) > 0 && c[0].Kind == wire.ChangeReady {
				close(ready)
			}
			w.seen = append(w.seen, c...)
			return nil
		})
	}()
	select {
	case <-ready:
	case err := <-w.end:
		stop()
		require.NoError(t, err)
	case <-ctx.Done():
		t.Fatal("the watch was not ready in time")
	}
	t.Cleanup(stop)
	return w
}

// sees waits for a change.
func (w *watcher) sees(t testing.TB, want supervisor.FileChange) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Contains(w.seen, want)
	}, minute, 10*time.Millisecond, "%+v of %+v", want, &w.seen)
}

func (w *watcher) count(kind wire.ChangeKind) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.seen {
		if c.Kind == kind {
			n++
		}
	}
	return n
}

const minute = time.Minute

func TestFileWatch(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 3*minute)
	f := b.Files(as)
	sh := func(script string) {
		t.Helper()
		res := b.run(shell("set -e; " + script))
		require.Zero(t, res.Exit.Code, "%s: %s", script, res.Stderr)
	}
	sh("mkdir -p /tmp/w/there /tmp/out; echo 1 >/tmp/w/there/old")
	w := watch(t, ctx, f, "/tmp/w")
	change := func(kind wire.ChangeKind, path string) supervisor.FileChange {
		return supervisor.FileChange{Kind: kind, Path: supervisor.Text(path)}
	}
	dir := func(kind wire.ChangeKind, path string) supervisor.FileChange {
		return supervisor.FileChange{Kind: kind, Path: supervisor.Text(path), Dir: true}
	}
	sh("echo 2 >>/tmp/w/there/old")
	w.sees(t, change(wire.ChangeModify, "there/old"))
	sh("chmod 600 /tmp/w/there/old")
	w.sees(t, change(wire.ChangeAttrib, "there/old"))
	// What is made in new directories before they can be watched is not lost.
	for i := range 20 {
		sh(fmt.Sprintf("mkdir -p /tmp/w/n%d/a/b/c; echo x >/tmp/w/n%d/a/b/c/file", i, i))
	}
	for i := range 20 {
		w.sees(t, change(wire.ChangeCreate, fmt.Sprintf("n%d/a/b/c/file", i)))
	}
	sh("mv /tmp/w/n1/a /tmp/w/there/moved")
	w.sees(t, supervisor.FileChange{Kind: wire.ChangeMove, Path: "there/moved", From: "n1/a", Dir: true})
	sh("echo y >>/tmp/w/there/moved/b/c/file")
	w.sees(t, change(wire.ChangeModify, "there/moved/b/c/file"))
	sh("mv /tmp/w/there/moved /tmp/out/gone")
	w.sees(t, dir(wire.ChangeRemove, "there/moved"))
	sh("mv /tmp/out/gone /tmp/w/back")
	w.sees(t, change(wire.ChangeCreate, "back/b/c/file"))
	// A file that is written through us is told once, by its own name.
	_, err := f.Write(ctx, "/tmp/w/written", 0o644, strings.NewReader("x"))
	require.NoError(t, err)
	w.sees(t, change(wire.ChangeCreate, "written"))
	sh("rm -r /tmp/w/n2")
	w.sees(t, dir(wire.ChangeRemove, "n2"))

	// More than is kept: an overflow says so, and the watch goes on, also in what was made meanwhile.
	w.hold.Lock()
	sh("mkdir /tmp/w/flood; cd /tmp/w/flood; seq -f '" + strings.Repeat("x", 150) + "%.0f' 1 30000 | xargs touch; mkdir -p late/later")
	w.hold.Unlock()
	require.Eventually(t, func() bool { return w.count(wire.ChangeOverflow) > 0 }, minute, 10*time.Millisecond)
	for i := 0; ; i++ { // the watches are being set again: one more file, until one is seen
		sh(fmt.Sprintf("echo x >/tmp/w/flood/late/later/f%d", i))
		found := false
		for range 20 {
			w.mu.Lock()
			found = slices.ContainsFunc(w.seen, func(c supervisor.FileChange) bool { return strings.HasPrefix(string(c.Path), "flood/late/later/f") })
			w.mu.Unlock()
			if found {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if found {
			break
		}
		select {
		case err := <-w.end:
			t.Fatalf("the watch ended: %v", err)
		default:
		}
		require.NoError(t, ctx.Err())
	}
	sh("rm -r /tmp/w")
	require.NoError(t, <-w.end)
	require.Equal(t, 1, w.count(wire.ChangeGone))
	for _, c := range w.seen {
		require.NotContains(t, string(c.Path+c.From), ".weft-")
	}

	// Its end among what was lost: the watches can't be set again, and that is told like any end.
	sh("mkdir /tmp/w")
	w = watch(t, ctx, f, "/tmp/w")
	w.hold.Lock()
	sh("mkdir /tmp/w/flood; cd /tmp/w/flood; seq -f '" + strings.Repeat("y", 150) + "%.0f' 1 30000 | xargs touch; rm -r /tmp/w")
	w.hold.Unlock()
	require.NoError(t, <-w.end)
	require.Equal(t, 1, w.count(wire.ChangeGone))

	// They are few, and whoever leaves makes room.
	sh("mkdir /tmp/many")
	var all []*watcher
	for range 16 {
		all = append(all, watch(t, ctx, f, "/tmp/many"))
	}
	err = f.Watch(ctx, "/tmp/many", true, 0, func([]supervisor.FileChange) error { return nil })
	require.Equal(t, fault.Exhausted, fault.CodeOf(err))
	for _, w := range all {
		w.stop()
		require.Error(t, <-w.end)
	}
	enough := io.EOF
	require.Eventually(t, func() bool {
		return f.Watch(ctx, "/tmp/many", true, 0, func([]supervisor.FileChange) error { return enough }) == enough
	}, minute, 50*time.Millisecond)
}
