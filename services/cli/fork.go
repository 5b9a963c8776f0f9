package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/schemas/workspace"
)

func (a *app) forkCommand() *cobra.Command {
	count := 1
	c := &cobra.Command{Use: "fork SANDBOX", Short: "Make sandboxes with the files of one", Args: exactly("SANDBOX"),
		Long: `fork makes sandboxes with the files that a sandbox has now: all of its root, and what it sees of the
workspace with its own changes to it. Processes start anew, each fork goes on by itself, and the source as before:
it stands still only while its files are copied. All of them are made, or none; each counts in the quota.

The sandbox must be of a template with writable_root: true.`,
		Example: "  weft sandbox fork $id -n 3",
		RunE:    func(c *cobra.Command, args []string) error { return a.sandboxFork(c.Context(), args[0], count) }}
	c.Flags().IntVarP(&count, "count", "n", 1, "how many, 1 to 16")
	c.ValidArgsFunction = a.complete(sandboxNames(workspace.SandboxRunning, workspace.SandboxPaused))
	return c
}

func (a *app) sandboxFork(ctx context.Context, id string, count int) error {
	return a.with(ctx, func(c *client.Client) error {
		if err := needWorkspace(c); err != nil {
			return err
		}
		forks, err := c.ForkSandbox(ctx, id, count)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(a.out, list{Schema, forks})
		}
		for _, s := range forks {
			fmt.Fprintln(a.out, s.ID)
		}
		return nil
	})
}
