// Package archtest holds the rules of the code base that a compiler does not know, as tests: which way
// imports go, what each package must document, what must not be in the tree.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/weftmesh/weft/"

type pkg struct {
	ImportPath, Dir, Doc string
	Name                 string
	Imports, Deps        []string
	GoFiles              []string
	Standard             bool
	Module               *struct{ Path string }
}

func root(t *testing.T) string {
	t.Helper()
	d, err := os.Getwd()
	require.NoError(t, err)
	return filepath.Dir(filepath.Dir(d))
}

// list runs go list over the workspace's modules.
func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Dir,Doc,Name,Imports,Deps,GoFiles,Standard,Module"}, args...)...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	require.NoError(t, err)
	dec := json.NewDecoder(strings.NewReader(string(out)))
	var ps []pkg
	for {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return ps
		}
		require.NoError(t, err)
		ps = append(ps, p)
	}
}

func ours(t *testing.T) []pkg {
	return list(t, "./schemas/...", "./pkg/...", "./services/...", "./tools/...")
}

// service gives the service that a package of ours belongs to, and whether it belongs to one.
func service(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, module+"services/")
	if !ok {
		return "", false
	}
	name, _, _ := strings.Cut(rest, "/")
	switch name {
	case "workspace-manager", "runtime", "filesystem", "secrets", "memory", "gateway", "agent":
		return name, true
	}
	return name, false
}

// TestImportsGoOneWay: schemas ← pkg ← services ← cmd, and services never import each other. Only
// services/weftd, which puts a process together, and the e2e tests see several.
func TestImportsGoOneWay(t *testing.T) {
	for _, p := range ours(t) {
		for _, i := range p.Imports {
			in, mine := strings.CutPrefix(i, module)
			if !mine {
				if strings.HasPrefix(p.ImportPath, module+"schemas") && strings.Contains(strings.SplitN(i, "/", 2)[0], ".") {
					t.Errorf("%s imports %s: schemas use the standard library only", p.ImportPath, i)
				}
				continue
			}
			from, _ := strings.CutPrefix(p.ImportPath, module)
			switch {
			case strings.HasPrefix(from, "schemas") && !strings.HasPrefix(in, "schemas"),
				strings.HasPrefix(from, "pkg/") && !strings.HasPrefix(in, "schemas") && !strings.HasPrefix(in, "pkg/"),
				strings.HasPrefix(from, "services/") && strings.HasPrefix(in, "tools/"):
				t.Errorf("%s imports %s: imports go schemas ← pkg ← services ← tools", from, in)
			}
			a, isA := service(p.ImportPath)
			b, isB := service(i)
			if isA && isB && a != b {
				t.Errorf("%s imports %s: services meet only over the mesh", from, in)
			}
			if isA && !isB && b != "" && b != "cmd" {
				t.Errorf("%s imports %s: a service does not know who runs it", from, in)
			}
		}
	}
}

// TestEveryPackageIsDocumented: a newcomer reads the package's doc first.
func TestEveryPackageIsDocumented(t *testing.T) {
	for _, p := range ours(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// TestTheCLIStaysSmall: weft and weft-init lie in every sandbox, so what only a node needs is not linked in.
func TestTheCLIStaysSmall(t *testing.T) {
	for cmd, banned := range map[string][]string{
		"weft":      {"github.com/containerd/containerd", "go.mongodb.org/", "github.com/hashicorp/vault", "modernc.org/sqlite", "google.golang.org/grpc", "github.com/nats-io/nats-server"},
		"weft-init": {"github.com/containerd/containerd", "github.com/nats-io", "net/http", "google.golang.org/"},
	} {
		for _, p := range list(t, "./services/cmd/"+cmd) {
			for _, d := range p.Deps {
				for _, b := range banned {
					if strings.HasPrefix(d, b) {
						t.Errorf("%s links %s", cmd, d)
					}
				}
			}
		}
	}
}
