package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"io"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/schemas/workspace"
)

// checkTimeout bounds each check.
const checkTimeout = 3 * time.Second

// checked is what one check found.
type checked struct {
	Part    string  `json:"part"`
	OK      bool    `json:"ok"`
	Millis  float64 `json:"ms"`
	Message string  `json:"message,omitempty"`
}

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{Use: "check", Short: "Check every part of the mesh, for monitoring", GroupID: groupMesh, Args: exactly(),
		Long: "check asks each part something small and prints a line for it. It exits with 0 if all of them\nanswered and a node has room, else with 7.",
		RunE: func(c *cobra.Command, _ []string) error { return a.check(c.Context()) }}
}

func (a *app) check(ctx context.Context) error {
	var results []checked
	probe := func(part string, f func(context.Context) (string, error)) bool {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		start := time.Now()
		msg, err := f(ctx)
		if err != nil {
			msg = message(err)
		}
		results = append(results, checked{part, err == nil, float64(time.Since(start).Microseconds()) / 1000, msg})
		return err == nil
	}
	var c *client.Client
	if probe("mesh", func(ctx context.Context) (_ string, err error) { c, err = a.client(ctx); return "", err }) {
		defer c.Close()
		services(c, probe)
	}
	if err := a.checkReport(results); err != nil {
		return err
	}
	for _, r := range results {
		if !r.OK {
			return exitCode(ExitUnavailable)
		}
	}
	return nil
}

// services asks each service something small. What it answers about a workspace that is not there is
// an answer, too.
func services(c *client.Client, probe func(string, func(context.Context) (string, error)) bool) {
	answered := func(err error) error {
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	}
	probe(schemas.WorkspaceManager, func(ctx context.Context) (string, error) {
		_, err := c.Workspaces().List(ctx, 1)
		return "", err
	})
	probe(schemas.Filesystem, func(ctx context.Context) (string, error) {
		_, err := c.Files(ctx, filesystem.ListRequest{}, 1)
		return "", answered(err)
	})
	probe(schemas.Secrets, func(ctx context.Context) (string, error) {
		_, err := c.Secrets(ctx, 1)
		return "", answered(err)
	})
	probe(schemas.Memory, func(ctx context.Context) (string, error) {
		_, err := c.Memories(ctx, memory.ListRequest{}, 1)
		return "", answered(err)
	})
	probe(schemas.Runtime, func(ctx context.Context) (string, error) {
		ns, err := c.Nodes(ctx)
		if err != nil {
			return "", err
		}
		ready, free := 0, 0
		for _, n := range ns {
			if n.State == workspace.NodeReady {
				ready++
				free += max(n.Slots-n.Used, 0)
			}
		}
		if ready == 0 {
			return "", fault.New(fault.Unavailable, "none of %s is ready; 'weft node list' says why", plural(len(ns), "node"))
		}
		return fmt.Sprintf("%s ready, %s free", plural(ready, "node"), plural(free, "slot")), nil
	})
}

func (a *app) checkReport(rs []checked) error {
	if a.json {
		return a.printJSON(a.out, list{Schema, rs})
	}
	for _, r := range rs {
		word := a.paint(green, "ok    ")
		if !r.OK {
			word = a.paint(red, "failed")
		}
		fmt.Fprintf(a.out, "%s  %-18s %7.1f ms  %s\n", word, r.Part, r.Millis, cell2(r.Message))
	}
	return nil
}

func cell2(s string) string {
	if s == "" {
		return ""
	}
	return cell(s)
}

// version is what version prints with --json.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Contract string `json:"contract"` // prefix of every subject
	JSON     string `json:"json"`     // shape of --json
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", GroupID: groupMesh, Args: exactly(), RunE: func(*cobra.Command, []string) error {
		v := version{Version: "devel", Go: runtime.Version(), Contract: schemas.Prefix, JSON: Schema}
		if b, ok := debug.ReadBuildInfo(); ok {
			if b.Main.Version != "" && b.Main.Version != "(devel)" {
				v.Version = b.Main.Version
			}
			for _, s := range b.Settings {
				switch s.Key {
				case "vcs.revision":
					v.Revision = s.Value
				case "vcs.modified":
					v.Modified = s.Value == "true"
				}
			}
		}
		return a.item(v, func(w io.Writer) {
			fmt.Fprintf(w, "weft %s %s\n", v.Version, v.Go)
			fields(w, "revision", v.Revision)
		})
	}}
}
