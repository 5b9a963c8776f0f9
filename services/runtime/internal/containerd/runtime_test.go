package containerd

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
)

func TestARuntimeIsANameAndNothingElse(t *testing.T) {
	e := &Engine{cfg: Config{Shim: "/nowhere/containerd-shim-runc-v2", Runc: "/nowhere/runc"}}
	for name, code := range map[string]fault.Code{
		Runc: "", Runsc: fault.Unavailable, "io.containerd.no-such-thing.v2": fault.Unavailable, "org.example.x.v1": fault.Unavailable,
		"": fault.Invalid, "runc": fault.Invalid, "/bin/sh": fault.Invalid, "io.containerd./bin/sh.v1": fault.Invalid, "io.containerd...v1": fault.Invalid,
		"io.containerd.x.v1\n": fault.Invalid, "io.containerd.x.v1 --version": fault.Invalid, "IO.containerd.x.v1": fault.Invalid,
		strings.Repeat("a.", 40) + "x.v1": fault.Invalid,
	} {
		err := e.HasRuntime(name)
		if code == "" {
			require.NoError(t, err, name)
		} else {
			require.True(t, fault.Is(err, code), "%q: %v", name, err)
		}
	}
	require.Equal(t, "containerd-shim-kata-v2", shimOf("io.containerd.kata.v2"))
	require.True(t, fault.Is(missingRuntime("io.containerd.kata.v2", errors.New(`runtime "x" binary not installed "y"`)), fault.Unavailable))
	require.NoError(t, missingRuntime("x", nil))
}

func FuzzRuntimeName(f *testing.F) {
	for _, s := range []string{Runc, Runsc, "io.containerd.kata.v2", "/bin/sh", "../x.v1", "a.b.c.v1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if !runtimeName.MatchString(name) {
			return
		}
		shim := shimOf(name)
		require.Equal(t, shim, filepath.Base(shim), "it names a file in no other directory")
		require.True(t, strings.HasPrefix(shim, "containerd-shim-"))
		require.NotContains(t, name, "/")
	})
}

func TestWhoseAFileOfRunscIs(t *testing.T) {
	const id = "buditrjcnss1gfc542e5"
	for name, want := range map[string]string{
		id + "_sandbox:" + id + ".state": id, id + "_sandbox:" + id + ".lock": id, "runsc-" + id + ".sock": id, "null-netns": "", "": "", "something-else": "",
	} {
		require.Equal(t, want, idIn(name), name)
	}
}
