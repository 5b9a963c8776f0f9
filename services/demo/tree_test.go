package demo

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/needs"
)

// plant makes files, by path and content, in a new directory.
func plant(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(content), 0o644))
	}
	return dir
}

func TestTakeWalksWhereThereIsNoGit(t *testing.T) {
	dir := plant(t, map[string]string{
		"a/one.go": "1\n2\n", "b/two.txt": "1", "top.md": "x\n", ".hidden/h": "h\n",
		"node_modules/m.js": "m", "b/.git/config": "no", "out/report.md": "of an earlier run", "bin": "\x00\x01\n\n",
	})
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "a/link")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a/bad\nname"), nil, 0o644))
	to := filepath.Join(t.TempDir(), "src")
	inv, err := take(context.Background(), dir, to, filepath.Join(dir, "out"))
	require.NoError(t, err)
	require.Equal(t, []string{".hidden/h", "a/one.go", "b/two.txt", "bin", "top.md"}, inv.Files)
	require.Equal(t, []string{"a", "b", "."}, inv.Tops)
	require.Equal(t, 5, inv.Lines, "a file with NUL has none")
	require.Equal(t, "1 name with control characters, 1 symlink or special file", inv.leftOut())
	require.Contains(t, inv.How, "walk")
	b, err := os.ReadFile(filepath.Join(to, "a/one.go"))
	require.NoError(t, err)
	require.Equal(t, "1\n2\n", string(b))
}

func TestTakeAsksGit(t *testing.T) {
	_, err := exec.LookPath("git")
	needs.All(t, err)
	dir := plant(t, map[string]string{"kept.go": "a\n", "new.go": "b\n", "ignored.o": "c\n", "gone.go": "d\n", ".gitignore": "*.o\n"})
	for _, args := range [][]string{{"init", "-q"}, {"add", "kept.go", "gone.go", ".gitignore"}} {
		out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "gone.go")))
	inv, err := take(context.Background(), dir, filepath.Join(t.TempDir(), "src"), "/nowhere")
	require.NoError(t, err)
	require.Equal(t, []string{".gitignore", "kept.go", "new.go"}, inv.Files)
	require.Equal(t, "git ls-files", inv.How)
}

func TestTakeRefusesAnEmptyDirectory(t *testing.T) {
	_, err := take(context.Background(), t.TempDir(), filepath.Join(t.TempDir(), "src"), "/nowhere")
	require.Equal(t, fault.Invalid, fault.CodeOf(err))
}

func TestWriteTar(t *testing.T) {
	dir := plant(t, map[string]string{"a/one.go": "package a\n", "run.sh": "#!/bin/sh\n"})
	require.NoError(t, os.Chmod(filepath.Join(dir, "run.sh"), 0o755))
	var b bytes.Buffer
	require.NoError(t, writeTar(&b, dir, "src", []string{"a/one.go", "run.sh"}, true))
	got, modes := map[string]string{}, map[string]int64{}
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		got[h.Name], modes[h.Name] = string(content), h.Mode
	}
	require.Equal(t, "package a\n", got["src/a/one.go"])
	require.EqualValues(t, 0o755, modes["src/run.sh"])
	for _, p := range []string{"planner", "analyst", "reviewer", "mesh", "attack"} {
		require.Contains(t, got, "agents/"+p+".py")
	}
}

func TestCountLines(t *testing.T) {
	for content, want := range map[string]int{"": 0, "\n": 1, "a": 1, "a\n": 1, "a\nb": 2, "a\r\nb\r\n": 2, "a\x00\n": 0, "\f\n\v\n": 2} {
		require.Equal(t, want, countLines([]byte(content)), "%q", content)
	}
	require.Zero(t, countLines(bytes.Repeat([]byte("\n"), largestText+1)))
}

// TestAgentsCompile has Python read the agents, where it is installed.
func TestAgentsCompile(t *testing.T) {
	python, err := exec.LookPath("python3")
	needs.All(t, err)
	programs, err := filepath.Glob("agents/*.py")
	require.NoError(t, err)
	require.NotEmpty(t, programs)
	check := "import ast, sys\nfor p in sys.argv[1:]: compile(open(p, encoding='utf-8').read(), p, 'exec')"
	out, err := exec.Command(python, append([]string{"-B", "-c", check}, programs...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestMeasure runs the agents' measuring on a small tree, where Python is installed.
func TestMeasure(t *testing.T) {
	python, err := exec.LookPath("python3")
	needs.All(t, err)
	block := strings.Repeat("a line that is long enough\n", 4) + "and then one\nand then two\nand then three\nand then four\n"
	dir := plant(t, map[string]string{
		"a/one.go":  "package a\n\nfunc Long() {\n\tx()\n\n\ty()\n}\n" + block,
		"a/two.py":  "def short():\n    pass\n" + block + "token = \"q8Zr7Lw2Xk9Vb4Nt6Ym1Pc3\"\n",
		"b/odd.txt": "form\ffeed\vone\u2028line",
		"b/bin":     "\x00\n\n",
		"top":       "x\n",
	})
	script := `
import json, sys
sys.path.insert(0, "agents")
import mesh; mesh.SOURCE = sys.argv[1]
import ledger, measure, tree
out = {}
for folder in tree.folders():
    a = measure.Audit(b"key")
    for p in tree.files(folder): a.add(p)
    out[folder] = a.result()
ledger.LIMIT = 60
parts = ledger.split(out["a"]["files"])
assert len(parts) == 2 and {**parts[0], **parts[1]} == out["a"]["files"], parts
a = out["a"]
assert [f["name"] for f in a["longest_functions"]][:1] == ["Long"] and a["longest_functions"][0]["lines"] == 5, a["longest_functions"]
assert a["duplicates"] == [{"a": "a/one.go", "b": "a/two.py", "blocks": 1}], a["duplicates"]
assert [(k["path"], k["line"], k["what"]) for k in a["keys"]] == [("a/two.py", 11, "assigned secret")], a["keys"]
assert "q8Zr7" not in json.dumps(a)
print({f: d["lines"] for f, d in out.items()})
`
	out, err := exec.Command(python, "-B", "-c", script, dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "{'a': 26, 'b': 1, '.': 1}\n", string(out), "lines are counted as the show counts them")
}
