package weftinit

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

func TestSmallestNames(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for c := 'a'; c <= 'z'; c++ {
		want = append(want, string(c))
		require.NoError(t, os.WriteFile(filepath.Join(dir, string(c)), nil, 0o600))
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	for _, room := range []int{0, 100, 1 << 20} {
		var got []string
		for more, last := true, ""; more; last = got[len(got)-1] {
			var names []string
			names, more, err = smallestNames(fd, last, room)
			require.NoError(t, err)
			require.NotEmpty(t, names)
			got = append(got, names...)
		}
		require.Equal(t, want, got, "%d bytes at once", room)
	}
}

func TestTemplate(t *testing.T) {
	re := regexp.MustCompile(`(?P<first>\w)(\d)?`)
	for in, want := range map[string]string{"<$1>": "<a>", "${first}$2": "a1", "$$1": "$1", "x": "x", "": ""} {
		with, err := parseTemplate(in, re)
		require.NoError(t, err, in)
		got, n, err := with.replaceAll(re, []byte("a1"), 100)
		require.NoError(t, err)
		require.Equal(t, want, string(got), in)
		require.Equal(t, 1, n)
	}
	for _, bad := range []string{"$", "$3", "${", "${no}", "$x"} {
		_, err := parseTemplate(bad, re)
		require.Error(t, err, bad)
	}
	with, err := parseTemplate("$1$1$1", regexp.MustCompile("(x+)"))
	require.NoError(t, err)
	_, _, err = with.replaceAll(regexp.MustCompile("(x+)"), bytes.Repeat([]byte("x"), 100), 299)
	require.Error(t, err, "it would grow beyond its room")
}

func TestChangesArePutTogether(t *testing.T) {
	p := newPending()
	change := func(kind wire.ChangeKind, path wire.Text) { p.add(wire.Change{Kind: kind, Path: path}) }
	change(wire.ChangeCreate, "new")
	change(wire.ChangeModify, "new")
	change(wire.ChangeCreate, "brief")
	change(wire.ChangeRemove, "brief")
	change(wire.ChangeRemove, "again")
	change(wire.ChangeCreate, "again")
	p.move("a", "b", false)
	p.move("b", "c", false)
	p.move("x", "y", false)
	change(wire.ChangeRemove, "y")
	change(wire.ChangeCreate, "temp")
	p.move("temp", "final", false)
	require.Equal(t, []wire.Change{{Kind: wire.ChangeCreate, Path: "new"}, {Kind: wire.ChangeModify, Path: "again"}, {Kind: wire.ChangeMove, Path: "c", From: "a"},
		{Kind: wire.ChangeRemove, Path: "x"}, {Kind: wire.ChangeCreate, Path: "final"}}, p.take())
	for range maxPending + 1 {
		change(wire.ChangeCreate, wire.Text(strings.Repeat("x", len(p.order)%200+1)+string(rune('a'+len(p.order)%26))+itoa(len(p.order))))
	}
	require.Equal(t, []wire.Change{{Kind: wire.ChangeOverflow}}, p.take())
	require.Empty(t, p.take())
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// FuzzTarNames: no name or link of a tar leads out of the directory that it is unpacked in.
func FuzzTarNames(f *testing.F) {
	for _, s := range [][2]string{{"a/b", "../c"}, {"/etc", "/x"}, {"a/../../b", "../../.."}, {"./a//b/", "."}, {"..", "a/.."}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, name, target string) {
		clean, err := tarName("name", name)
		if err != nil {
			return
		}
		if clean != "" && !filepath.IsLocal(clean) {
			t.Fatalf("%q became %q", name, clean)
		}
		if clean == "" || tarTarget(clean, target) != nil {
			return
		}
		if to := filepath.Join(filepath.Dir(clean), target); to != "." && !filepath.IsLocal(to) {
			t.Fatalf("link %q to %q leads to %q", clean, target, to)
		}
	})
}

// FuzzTarIn unpacks whatever comes, as the test's own user: nothing appears beside the directory, and nothing hangs.
func FuzzTarIn(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o644}, {Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "f"}} {
		require.NoError(f, w.WriteHeader(&h))
	}
	require.NoError(f, w.Close())
	f.Add(b.Bytes())
	f.Add([]byte("no tar"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		above := t.TempDir()
		dir := filepath.Join(above, "in")
		require.NoError(t, os.Mkdir(dir, 0o755))
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		id := ownIdentity
		c := &call{req: &wire.Request{As: &id}}
		u := &untarrer{c: c, s: newSink(fd)}
		_ = u.run(io.LimitReader(bytes.NewReader(raw), 1<<20))
		_ = c.act(u.s.settle)
		u.s.close()
		left, err := os.ReadDir(above)
		require.NoError(t, err)
		require.True(t, len(left) == 1 && left[0].Name() == "in")
	})
}

// FuzzFileRequest: any query is refused or can be worked with.
func FuzzFileRequest(f *testing.F) {
	f.Add([]byte(`{"op":"search","path":"/x","files":{"pattern":"a(b","glob":"**/{a,b}","limit":3}}`))
	f.Add([]byte(`{"op":"replace","path":{"b64":"/w=="},"files":{"paths":["a/b",{"b64":"/w=="}],"with":"$1"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var r wire.Request
		if json.Unmarshal(raw, &r) != nil || r.Files == nil {
			return
		}
		q := *r.Files
		if q.Check() != nil {
			return
		}
		if q.Depth <= 0 || q.Depth > wire.MaxDepth {
			t.Fatalf("depth %d", q.Depth)
		}
		taken(q.Glob, []byte("some/path/in/a/tree"))
		if re, err := q.Regexp(); err == nil {
			if with, err := parseTemplate(q.With, re); err == nil {
				out, _, err := with.replaceAll(re, []byte("some text\nof two lines"), 1000)
				if err == nil && len(out) > 1000 {
					t.Fatalf("%d bytes", len(out))
				}
			}
		}
		for _, p := range q.Paths {
			if wire.CheckRelative("path", p) == nil && !filepath.IsLocal(string(p)) {
				t.Fatalf("%q leads outside", p)
			}
		}
	})
}
