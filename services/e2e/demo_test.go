package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/demo"
)

// TestDemo gives the whole show of `weft demo` on a small code base: every one of its claims must hold.
func TestDemo(t *testing.T) {
	requireComponents(t)
	input := t.TempDir()
	for name, text := range map[string]string{
		"alpha/a.go": "package alpha\n\n// A is one.\nfunc A() int {\n\treturn 1\n}\n", "beta/b.py": "def b():\n    x = 1\n    x += 1\n    return x\n\n\nprint(b())\n",
		"gamma/c.txt": "one\ntwo\nthree\nfour\nfive\nsix\n", "README.md": "# A code base\n\nIt is small,\nbut it has\nall that is needed.\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(input, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(input, name), []byte(text), 0o644))
	}
	log := &lockedWriter{w: &world{t: t}}
	res, err := demo.Run(ctx(t, 3*time.Minute), demo.Options{Input: input, Output: filepath.Join(t.TempDir(), "out"), Daemon: filepath.Join(binDir, "weftd"), Out: log})
	require.NoError(t, err, "%s", log.w.logs())
	require.True(t, res.OK(), "%v\n%s", res.Failed(), log.w.logs())
	require.GreaterOrEqual(t, len(res.Checks), 25)
	require.NotEmpty(t, res.Attacks)
}
