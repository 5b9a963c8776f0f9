package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
)

// completeTimeout bounds what a press of the tab key may take.
const completeTimeout = 5 * time.Second

// complete offers names from the mesh for a command's first argument. A mesh that does not answer offers none.
func (a *app) complete(names func(context.Context, *client.Client) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completeTimeout)
		defer cancel()
		var out []string
		_ = a.with(ctx, func(cl *client.Client) error {
			all, err := names(ctx, cl)
			for _, n := range all {
				if strings.HasPrefix(n, begun) {
					out = append(out, n)
				}
			}
			return err
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func poolNames(ctx context.Context, c *client.Client) ([]string, error) {
	ps, err := c.Pools().List(ctx)
	var out []string
	for _, p := range ps {
		out = append(out, poolTitle(p))
	}
	return out, err
}

func templateNames(ctx context.Context, c *client.Client) ([]string, error) {
	ts, err := c.Templates().List(ctx, 0)
	var out []string
	for _, t := range ts {
		out = append(out, t.Name)
	}
	return out, err
}
