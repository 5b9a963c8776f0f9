package main

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/needs"
)

// TestTemplates runs programs of the built images in a chroot: those that agents count on.
func TestTemplates(t *testing.T) {
	if os.Geteuid() != 0 {
		needs.All(t, fmt.Errorf("chroot needs root: run the tests as root"))
	}
	const common = `set -e
test "$(id -un)" = agent
test -w /workspace -a -w /home/agent -a -w /tmp -a ! -w /etc
test "$(printf 'b\na\n' | sort | head -1)" = a
test "$(echo '{"a":[1,2]}' | jq -c '.a[1]')" = 2
test "$(echo x y | awk '{print $2}' | sed s/y/z/ | grep -o z)" = z
test "$(find /etc -name passwd)" = /etc/passwd
test "$(locale charmap)" = UTF-8
grep -q 'BEGIN CERTIFICATE' /etc/ssl/certs/ca-certificates.crt
tar czf /tmp/x.tgz -C /etc passwd && tar tzf /tmp/x.tgz | grep -qx passwd
getent hosts localhost >/tmp/x
tput -T xterm cols >/tmp/x
/usr/bin/env sh -c 'exit 0'`
	tests := []struct {
		template, script string
		megabytes        int64 // unpacked, at most
	}{
		{"base", common, 60},
		{"python", common + `
test "$(command -v python3)" = /usr/bin/python3
/usr/bin/env python3 -c '
import json, ssl, sqlite3, ctypes, lzma, bz2, zlib, hashlib, asyncio, subprocess, decimal, curses, readline, uuid, urllib.request
assert json.__cached__ and __import__("os").path.exists(json.__cached__), "compiled ahead"
assert len(ssl.create_default_context().get_ca_certs()) > 50
sqlite3.connect(":memory:").execute("create virtual table t using fts5(x)")
'
python -c 'print("ok")'`, 100},
		{"debian", `set -e
test "$(id -un)" = agent
test "$(stat -c %A:%u /usr/bin/sudo)" = -rwsr-xr-x:0
test "$(find / -xdev -perm /6000 -type f 2>/dev/null)" = /usr/bin/sudo
test -z "$(cat /etc/apt/sources.list.d/* 2>/dev/null)"
dpkg-query -W -f '${Package} ${Status}\n' apt dpkg sudo | grep -c ' install ok installed$' | grep -qx 3
dpkg -L libc6 | grep -q /libc.so.6
apt-get --version | grep -q '^apt '`, 120},
	}
	for _, tt := range tests {
		t.Run(tt.template, func(t *testing.T) {
			archive, err := toolchain.Image(tt.template)
			needs.All(t, err)
			root, env, size := unpack(t, archive)
			require.LessOrEqual(t, size, tt.megabytes*1_000_000)

			// The sandbox's /dev is not there: a null device is all that the shell asks for.
			null := filepath.Join(root, "dev", "null")
			require.NoError(t, syscall.Mknod(null, syscall.S_IFCHR|0o666, 1<<8|3))
			require.NoError(t, os.Chmod(null, 0o666))

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "/bin/bash", "-c", tt.script)
			cmd.Env, cmd.Dir = env, "/workspace"
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
			output, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", output)
		})
	}
}

// unpack extracts the only layer of an image archive, and returns its root, environment and size.
func unpack(t *testing.T, archive string) (root string, env []string, size int64) {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	extract(t, f, dir)
	store, err := layout.FromPath(dir)
	require.NoError(t, err)
	index, err := store.ImageIndex()
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	img, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "1000:1000", config.Config.User)
	require.Equal(t, "/workspace", config.Config.WorkingDir)
	layers, err := img.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	tree, err := layers[0].Uncompressed()
	require.NoError(t, err)
	defer tree.Close()

	// A chroot must be reachable for its user.
	root = t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	require.NoError(t, os.Chmod(root, 0o755))
	return root, config.Config.Env, extract(t, tree, root)
}

// extract unpacks a tar of ours, with modes and owners.
func extract(t *testing.T, in io.Reader, root string) (size int64) {
	t.Helper()
	var dirs []*tar.Header // their modes come last, or a read-only one could not be filled
	for reader := tar.NewReader(in); ; {
		h, err := reader.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(h.Name), h.Name)
		path := filepath.Join(root, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			require.NoError(t, os.MkdirAll(path, 0o755))
			dirs = append(dirs, h)
		case tar.TypeSymlink:
			require.NoError(t, os.Symlink(h.Linkname, path))
		case tar.TypeReg:
			out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			require.NoError(t, err)
			n, err := io.Copy(out, reader)
			require.NoError(t, err)
			require.NoError(t, out.Close())
			size += n
		default:
			t.Fatalf("%s is of type %c", h.Name, h.Typeflag)
		}
		require.NoError(t, os.Lchown(path, h.Uid, h.Gid))
		if h.Typeflag == tar.TypeReg { // after the owner, whose change takes setuid away
			require.NoError(t, syscall.Chmod(path, uint32(h.Mode)))
		}
	}
	for _, h := range dirs {
		mode := os.FileMode(h.Mode & 0o777)
		if h.Mode&0o1000 != 0 {
			mode |= os.ModeSticky
		}
		require.NoError(t, os.Chmod(filepath.Join(root, h.Name), mode))
	}
	return size
}
