package image

import (
	"archive/tar"
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// extracted is a small tree as mmdebstrap leaves it, with the entries in any order.
func extracted(t *testing.T, shuffle *rand.Rand) []byte {
	t.Helper()
	type entry struct {
		tar.Header
		content string
	}
	status := "Package: bash\nVersion: 5\nStatus: install ok installed\n\nPackage: debconf\nVersion: 1\nStatus: install ok installed\n\n"
	entries := []entry{
		{tar.Header{Typeflag: tar.TypeReg, Name: "./bin/bash", Mode: 0o755}, "bash"},
		{tar.Header{Typeflag: tar.TypeReg, Name: "./bin/su", Mode: 0o4755}, "su"},
		{tar.Header{Typeflag: tar.TypeReg, Name: "./usr/bin/env", Mode: 0o755}, "env"},
		{tar.Header{Typeflag: tar.TypeReg, Name: "./usr/sbin/debconf", Mode: 0o755}, "debconf"},
		{tar.Header{Typeflag: tar.TypeReg, Name: "./usr/share/shared", Mode: 0o644}, "of both"},
		{tar.Header{Typeflag: tar.TypeReg, Name: "./usr/share/doc/bash/copyright", Mode: 0o644}, "GPL"},
		{tar.Header{Typeflag: tar.TypeReg, Name: "./usr/share/doc/bash/changelog.gz", Mode: 0o644}, "long"},
		{tar.Header{Typeflag: tar.TypeChar, Name: "./dev/null", Mode: 0o666}, ""},
		{tar.Header{Typeflag: tar.TypeReg, Name: "./usr/share/ca-certificates/mozilla/B.crt", Mode: 0o644}, "B\n"},
		{tar.Header{Typeflag: tar.TypeReg, Name: "./usr/share/ca-certificates/mozilla/A.crt", Mode: 0o644}, "A"},
		{tar.Header{Typeflag: tar.TypeReg, Name: "./var/lib/dpkg/status", Mode: 0o644}, status},
		{tar.Header{Typeflag: tar.TypeReg, Name: "./var/lib/dpkg/info/bash.list", Mode: 0o644}, "/.\n/bin\n/bin/bash\n/usr/share/shared\n"},
		{tar.Header{Typeflag: tar.TypeReg, Name: "./var/lib/dpkg/info/debconf.list", Mode: 0o644}, "/.\n/usr/sbin/debconf\n/usr/share/shared\n"},
	}
	if shuffle != nil {
		shuffle.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	}
	// A hard link comes after its target.
	entries = append(entries, entry{tar.Header{Typeflag: tar.TypeLink, Name: "./bin/rbash", Linkname: "./bin/bash", Mode: 0o755}, ""})
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		e.Size = int64(len(e.content))
		e.ModTime, e.Uid = time.Now(), 0
		require.NoError(t, w.WriteHeader(&e.Header))
		_, err := io.WriteString(w, e.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

var smallRecipe = Recipe{
	Name: "small", Version: "1", Packages: []string{"bash"}, Without: []string{"debconf"},
	Drop: []string{"/usr/share/doc/*/*"}, Keep: []string{"/usr/share/doc/*/copyright"}, CABundle: "/etc/ssl/certs/ca-certificates.crt",
	Dirs:   []Entry{{Path: "/workspace", Mode: "0755", Owner: 1000}, {Path: "/tmp", Mode: "1777"}},
	Files:  []Entry{{Path: "/etc/passwd", Mode: "0644", Content: []string{"root:x:0:0", "agent:x:1000:1000"}}},
	Links:  map[string]string{"/usr/bin/sh": "bash"},
	Config: Config{User: "1000:1000", WorkingDir: "/workspace", Env: map[string]string{"PATH": "/usr/bin", "A": "1"}},
}

func rootfs(t *testing.T, r Recipe, in []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Rootfs(r, bytes.NewReader(in), int64(len(in)), &out))
	return out.Bytes()
}

// unpacked reads a tar into a map, and checks that directories come before what is in them.
func unpacked(t *testing.T, in []byte) map[string]tar.Header {
	t.Helper()
	files, reader := map[string]tar.Header{}, tar.NewReader(bytes.NewReader(in))
	for {
		h, err := reader.Next()
		if err == io.EOF {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		if parent := h.Name[:max(0, strings.LastIndexByte(strings.TrimSuffix(h.Name, "/"), '/')+1)]; parent != "" {
			require.Contains(t, files, parent, "before %s", h.Name)
		}
		require.Equal(t, epoch, h.ModTime.UTC(), h.Name)
		if h.Typeflag == tar.TypeReg {
			h.Linkname = string(content) // for the tests to look at
		}
		files[h.Name] = *h
	}
}

func TestRootfsAppliesTheRecipe(t *testing.T) {
	files := unpacked(t, rootfs(t, smallRecipe, extracted(t, nil)))

	require.Equal(t, "usr/bin", files["bin"].Linkname, "/bin is a link into /usr")
	require.Equal(t, "bash", files["usr/bin/bash"].Linkname)
	require.Equal(t, "bash", files["usr/bin/rbash"].Linkname, "a hard link is a file of its own")
	require.Equal(t, byte(tar.TypeReg), files["usr/bin/rbash"].Typeflag)
	require.EqualValues(t, 0o755, files["usr/bin/su"].Mode, "no setuid")
	require.NotContains(t, files, "dev/null", "no devices")

	require.NotContains(t, files, "usr/sbin/debconf", "the package is left out")
	require.Contains(t, files, "usr/share/shared", "another package owns it too")
	require.NotContains(t, files["var/lib/dpkg/status"].Linkname, "debconf")
	require.Contains(t, files["var/lib/dpkg/status"].Linkname, "Package: bash\nVersion: 5\n")

	require.Contains(t, files, "usr/share/doc/bash/copyright")
	require.NotContains(t, files, "usr/share/doc/bash/changelog.gz")
	require.Equal(t, "A\nB\n", files["etc/ssl/certs/ca-certificates.crt"].Linkname)

	require.Equal(t, "root:x:0:0\nagent:x:1000:1000\n", files["etc/passwd"].Linkname)
	require.Equal(t, 1000, files["workspace/"].Uid)
	require.EqualValues(t, 0o1777, files["tmp/"].Mode)
	require.Equal(t, "bash", files["usr/bin/sh"].Linkname)
}

func TestSetuidIsWhatTheRecipeNames(t *testing.T) {
	in, r := extracted(t, nil), smallRecipe
	r.Setuid = []string{"/usr/bin/su"}
	files := unpacked(t, rootfs(t, r, in))
	require.EqualValues(t, 0o4755, files["usr/bin/su"].Mode)
	require.EqualValues(t, 0o755, files["usr/bin/env"].Mode)
	for _, name := range []string{"/usr/bin/no-such", "/usr/bin", "/usr/bin/sh"} {
		r.Setuid = []string{name}
		require.ErrorContains(t, Rootfs(r, bytes.NewReader(in), int64(len(in)), io.Discard), name+" can't be setuid")
	}
}

func TestRootfsFollowsFromTheContentAlone(t *testing.T) {
	want := rootfs(t, smallRecipe, extracted(t, nil))
	for seed := range uint64(5) {
		require.Equal(t, want, rootfs(t, smallRecipe, extracted(t, rand.New(rand.NewPCG(seed, 0)))))
	}
}

func TestRootfsRefuses(t *testing.T) {
	in := extracted(t, nil)
	absent := smallRecipe
	absent.Without = []string{"no-such"}
	err := Rootfs(absent, bytes.NewReader(in), int64(len(in)), io.Discard)
	require.ErrorContains(t, err, "package no-such is not in the tree")

	uncertified := smallRecipe
	uncertified.Drop = []string{"/usr/share/ca-certificates"}
	err = Rootfs(uncertified, bytes.NewReader(in), int64(len(in)), io.Discard)
	require.ErrorContains(t, err, "needs the package ca-certificates")

	require.Error(t, Rootfs(smallRecipe, bytes.NewReader(in[:700]), 700, io.Discard), "a tar that was cut short")
}
