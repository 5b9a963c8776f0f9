package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/services/cli"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weft": weft, "weftd": fakeDaemon})
}

// weft is the program, as services/cmd/weft makes it.
func weft() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(cli.Main(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// TestScripts runs what a person types against a real NATS server with the mesh's accounts, and services
// that keep everything in memory and run commands on this machine.
func TestScripts(t *testing.T) {
	f := startFake(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(e *testscript.Env) error { return f.setup(e) },
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"json": jsonCommand},
	})
}

// setup gives each script a workspace of its own, named after it, and a context for it.
func (f *fakeMesh) setup(e *testscript.Env) error {
	name := strings.TrimPrefix(filepath.Base(e.WorkDir), "script-")
	f.addWorkspace(name)
	cs, err := client.LoadContexts(filepath.Join(e.WorkDir, "contexts.json"))
	if err != nil {
		return err
	}
	cs.Contexts["test"] = client.Context{URL: f.m.Bus.URL(), DataDir: f.m.Dir, Tenant: "acme", Workspace: name, Principal: "alice"}
	cs.Current = "test"
	if err := cs.Save(); err != nil {
		return err
	}
	e.Setenv("WEFT_CONTEXTS", filepath.Join(e.WorkDir, "contexts.json"))
	e.Setenv("HOME", e.WorkDir)
	e.Setenv("USER", "alice")
	e.Setenv("WS", name)
	e.Setenv("URL", f.m.Bus.URL())
	e.Setenv("DATA", f.m.Dir)
	e.Setenv("TERM", "xterm")
	return nil
}

// jsonCommand is: json PATH VALUE, about the last line of the last stdout; PATH has dots and indices.
// json -var NAME PATH sets a variable from it, json -err is about stderr.
func jsonCommand(ts *testscript.TestScript, neg bool, args []string) {
	from := "stdout"
	if len(args) > 0 && args[0] == "-err" {
		from, args = "stderr", args[1:]
	}
	lines := strings.Split(strings.TrimSpace(ts.ReadFile(from)), "\n")
	var v any
	ts.Check(json.Unmarshal([]byte(lines[len(lines)-1]), &v))
	variable := ""
	if len(args) == 3 && args[0] == "-var" {
		variable, args = args[1], args[2:]
	}
	for _, k := range strings.Split(args[0], ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[k]
		case []any:
			i := 0
			ts.Check(json.Unmarshal([]byte(k), &i))
			if i >= len(x) {
				ts.Fatalf("%s has %d items", args[0], len(x))
			}
			v = x[i]
		default:
			v = nil
		}
	}
	b, _ := json.Marshal(v)
	got := string(b)
	if s, ok := v.(string); ok {
		got = s
	}
	if variable != "" {
		ts.Setenv(variable, got)
		return
	}
	if (got == args[1]) == neg {
		ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
	}
}

func TestExitCodes(t *testing.T) {
	for code, want := range map[string]int{"invalid": 2, "not_found": 3, "denied": 4, "conflict": 5, "exhausted": 6, "unavailable": 7, "deadline": 8, "internal": 1} {
		require.Equal(t, want, cli.ExitCode(faultOf(code)), code)
	}
}
