package config

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
)

func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weft.yaml")
	require.NoError(t, os.WriteFile(file, []byte("data-dir: from-file\nslots: 7\nlease: 3s\n"), 0o600))
	f := flag.NewFlagSet("x", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.String(FileFlag, "", "")
	dir, slots, lease, name := f.String("data-dir", "default", ""), f.Int("slots", 1, ""), f.Duration("lease", time.Second, ""), f.String("name", "default", "")
	require.NoError(t, Parse(f, []string{"-config", file, "-slots", "9"}, []string{"WEFT_DATA_DIR=from-env", "OTHER=1", "WEFT_SLOTS=8"}))
	require.Equal(t, "from-env", *dir)
	require.Equal(t, 9, *slots)
	require.Equal(t, 3*time.Second, *lease)
	require.Equal(t, "default", *name)
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		file, env string
		args      []string
		code      fault.Code
		says      string
	}{
		"unknown setting": {file: "sluts: 3\n", code: fault.Invalid, says: "sluts"},
		"not a number":    {env: "WEFT_SLOTS=many", code: fault.Invalid, says: "WEFT_SLOTS"},
		"nested":          {file: "slots: {a: 1}\n", code: fault.Invalid, says: "one value"},
		"no file":         {args: []string{"-config", "/nonexistent/weft.yaml"}, code: fault.NotFound, says: "no configuration file"},
		"argument":        {args: []string{"extra"}, code: fault.Invalid, says: "extra"},
		"unknown flag":    {args: []string{"-nope"}, code: fault.Invalid, says: "nope"},
	} {
		t.Run(name, func(t *testing.T) {
			f := flag.NewFlagSet("x", flag.ContinueOnError)
			f.SetOutput(io.Discard)
			f.String(FileFlag, "", "")
			f.Int("slots", 1, "")
			if c.file != "" {
				path := filepath.Join(t.TempDir(), "weft.yaml")
				require.NoError(t, os.WriteFile(path, []byte(c.file), 0o600))
				c.args = append(c.args, "-config", path)
			}
			err := Parse(f, c.args, []string{c.env})
			require.Error(t, err)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.code, fault.CodeOf(err))
		})
	}
}
