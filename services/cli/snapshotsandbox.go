package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/schemas/workspace"
)

func (a *app) sandboxSnapshotCommand() *cobra.Command {
	template := ""
	c := &cobra.Command{Use: "snapshot SANDBOX --template NAME", Short: "Make a template of what a sandbox has changed of its root", Args: exactly("SANDBOX"),
		Long: `snapshot makes a template of a sandbox: its image is the sandbox's with what was changed of the root file
system as one more layer, so that what was installed is there in every sandbox made from it. The sandbox stands
still meanwhile and goes on. Files of the workspace, /tmp and processes are not in it.

The sandbox must be of a template with writable_root: true. The image stays on the sandbox's node, where sandboxes
of the new template are made; it is removed with the template, when no sandbox uses it any more.`,
		Example: "  weft sandbox exec $id -- pip install numpy\n  weft sandbox snapshot $id --template with-numpy\n  weft sandbox create --template with-numpy",
		RunE:    func(c *cobra.Command, args []string) error { return a.sandboxSnapshot(c.Context(), args[0], template) }}
	c.Flags().StringVar(&template, "template", "", "`name` of the template in this workspace; one that is there gets a new version")
	_ = c.MarkFlagRequired("template")
	c.ValidArgsFunction = a.complete(sandboxNames(workspace.SandboxRunning, workspace.SandboxPaused))
	return c
}

func (a *app) sandboxSnapshot(ctx context.Context, id, template string) error {
	return a.with(ctx, func(c *client.Client) error {
		if err := needWorkspace(c); err != nil {
			return err
		}
		t, err := c.SnapshotSandbox(ctx, id, template)
		if err != nil {
			return err
		}
		return a.done(t, "template %s has version %d", t.Name, t.Version)
	})
}
