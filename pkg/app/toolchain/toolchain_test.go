package toolchain

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// script writes a program that prints output and returns its path.
func script(t *testing.T, dir, name, output string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, name)
	text := fmt.Sprintf("#!/bin/sh\ncat <<'END'\n%s\nEND\n", output)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	return path
}

// machine gives the test an empty cache and a PATH with nothing of ours on it.
func machine(t *testing.T) (cache, path string) {
	t.Helper()
	dir := t.TempDir()
	cache, path = filepath.Join(dir, "cache"), filepath.Join(dir, "path")
	t.Setenv("WEFT_CACHE", cache)
	// The scripts need cat; what this machine may have installed must not be seen.
	tools := filepath.Join(dir, "tools")
	require.NoError(t, os.MkdirAll(tools, 0o755))
	require.NoError(t, os.Symlink("/bin/cat", filepath.Join(tools, "cat")))
	t.Setenv("PATH", path+":"+tools)
	for name := range programs {
		t.Setenv(Variable(name), "")
	}
	return cache, path
}

const (
	goodRunc       = "runc version 1.3.3\nspec: 1.2.1\nlibseccomp: 2.5.5"
	goodContainerd = "containerd github.com/containerd/containerd/v2 v2.1.4 abc"
	goodRunsc      = "runsc version release-20260905.0\nspec: 1.2.1"
	goodShim       = "containerd-shim-runc-v2:\n  Version:  v2.1.4\n"
)

func TestFindLooksInTheEnvironmentThenOnPathThenInTheCache(t *testing.T) {
	cache, path := machine(t)

	_, err := Find("runc")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "make setup")

	cached := script(t, filepath.Join(cache, "bin"), "runc", goodRunc)
	found, err := Find("runc")
	require.NoError(t, err)
	require.Equal(t, cached, found)

	installed := script(t, path, "runc", goodRunc)
	found, err = Find("runc")
	require.NoError(t, err)
	require.Equal(t, installed, found)

	named := script(t, t.TempDir(), "my-runc", "whatever the operator wants")
	t.Setenv("WEFT_RUNC_BIN", named)
	found, err = Find("runc")
	require.NoError(t, err)
	require.Equal(t, named, found)

	t.Setenv("WEFT_RUNC_BIN", "/no/such/runc")
	_, err = Find("runc")
	require.ErrorContains(t, err, "WEFT_RUNC_BIN")
}

func TestFindSaysWhyWhatIsInstalledDoesNotServe(t *testing.T) {
	tests := []struct{ name, program, output, want string }{
		{"old runc", "runc", "runc version 1.1.5+ds1\nlibseccomp: 2.5.4", "1.2.8, 1.3.3, 1.4.0"},
		{"runc of a fixed series before the fix", "runc", "runc version 1.3.2\nlibseccomp: 2.5.4", "1.3.3"},
		{"candidate of the fixed release", "runc", "runc version 1.4.0-rc.1\nlibseccomp: 2.5.4", "1.4.0"},
		{"runc without seccomp", "runc", "runc version 1.5.2\nspec: 1.3.0", "without seccomp"},
		{"old containerd", "containerd", "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1", "at least 2.1.0"},
		{"containerd without its shim", "containerd", goodContainerd, "containerd-shim-runc-v2 is missing"},
		{"old Vault", "vault", "Vault v1.9.2 (abc)", "at least 1.14.0"},
		{"Vault that wants a licence", "vault", "Vault v1.18.3+ent (abc)", "licence"},
		{"no version at all", "runc", "hello", "prints no version"},
		{"old gVisor", "runsc", "runsc version release-20250407.0\nspec: 1.1.0-rc.1", "at least 20260905.0.0"},
		{"gVisor without a release", "runsc", "runsc version VERSION_MISSING\nspec: 1.2.1", "prints no version"},
		{"gVisor without its shim", "runsc", goodRunsc, "containerd-shim-runsc-v1 is missing"},
		{"FerretDB of another make", "ferretdb", "version: v2.4.0", "not on PATH"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, path := machine(t)
			script(t, path, tt.program, tt.output)
			name := tt.program
			if name == "vault" {
				name = "bao"
			}
			_, err := Find(name)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "make setup")
		})
	}
}

func TestInstalledTakesWhatServes(t *testing.T) {
	tests := []struct {
		name, program, want string
		files               map[string]string
	}{
		{"containerd with its shim", "containerd", "2.1.4", map[string]string{"containerd": goodContainerd, "containerd-shim-runc-v2": goodShim}},
		{"the shim of that containerd", "containerd-shim-runc-v2", "2.1.4", map[string]string{"containerd": goodContainerd, "containerd-shim-runc-v2": goodShim}},
		{"runc of the oldest fixed series", "runc", "1.2.8", map[string]string{"runc": "runc version 1.2.8\nlibseccomp: 2.5.4"}},
		{"runc of a new series", "runc", "1.5.2", map[string]string{"runc": "runc version 1.5.2\nlibseccomp: 2.5.4"}},
		{"gVisor with its shim", "runsc", "20260905.0.0", map[string]string{"runsc": goodRunsc, "containerd-shim-runsc-v1": "containerd-shim-runsc-v1:\n  Version:  2.1.5+unknown\n"}},
		{"OpenBao", "bao", "2.4.0", map[string]string{"bao": "OpenBao v2.4.0"}},
		{"Vault where there is no OpenBao", "bao", "1.18.3", map[string]string{"vault": "Vault v1.18.3 (abc), built 2024"}},
		{"Vault where OpenBao is too old", "bao", "1.18.3", map[string]string{"bao": "OpenBao v1.9.0", "vault": "Vault v1.18.3 (abc)"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, path := machine(t)
			for name, output := range tt.files {
				script(t, path, name, output)
			}
			found, err := Installed(tt.program)
			require.NoError(t, err)
			require.Equal(t, tt.want, found.Version)
			require.True(t, filepath.IsAbs(found.Path))
		})
	}
}

func TestImage(t *testing.T) {
	cache, _ := machine(t)
	_, err := Image("python")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "make setup")

	want := script(t, filepath.Join(cache, "images"), "python.tar", "an archive")
	got, err := Image("python")
	require.NoError(t, err)
	require.Equal(t, want, got)

	for _, name := range []string{"", ".", "..", "../python", "a/b", ".hidden"} {
		_, err := Image(name)
		require.Error(t, err, name)
	}
}

func TestCacheFollowsTheEnvironment(t *testing.T) {
	t.Setenv("WEFT_CACHE", "/somewhere/else")
	require.Equal(t, "/somewhere/else", Cache())
	t.Setenv("WEFT_CACHE", "")
	t.Setenv("HOME", "/home/ada")
	require.Equal(t, "/home/ada/.cache/weft", Cache())
	t.Setenv("HOME", "")
	require.True(t, filepath.IsAbs(Cache()), "without HOME the user database is asked")
}

func FuzzParseVersion(f *testing.F) {
	f.Add("runc version 1.4.0-rc.1\n")
	f.Add("containerd github.com/containerd/containerd/v2 2.4.2+unknown")
	f.Fuzz(func(t *testing.T, output string) {
		v, ok := ParseVersion(output)
		if !ok {
			return
		}
		again, ok := ParseVersion(v.String())
		require.True(t, ok)
		require.Equal(t, v, again)
		require.False(t, v.Less(again))
	})
}
