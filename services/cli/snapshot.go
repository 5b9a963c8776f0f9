package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/filesystem"
)

func (a *app) snapshotCommand() *cobra.Command {
	var message string
	create := &cobra.Command{Use: "create", Short: "Keep the files as they are now", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.snapshotCreate(c.Context(), message) }}
	create.Flags().StringVarP(&message, "message", "m", "", "what it is")
	max := 0
	list := &cobra.Command{Use: "list", Short: "List snapshots, the newest first", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.snapshotList(c.Context(), max) }}
	list.Flags().IntVar(&max, "limit", 50, "at most so many, 0 for all")
	diff := &cobra.Command{Use: "diff FROM [TO]", Short: "List what differs between two snapshots, or a snapshot and the head", Args: between(1, "FROM", "TO"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.snapshotDiff(c.Context(), append(args, "")[0], append(args, "")[1])
		}}
	restore := &cobra.Command{Use: "restore SNAPSHOT", Short: "Make a snapshot the head again", Args: exactly("SNAPSHOT"),
		RunE: func(c *cobra.Command, args []string) error { return a.snapshotRestore(c.Context(), args[0]) }}
	return parent("snapshot", groupHave, "Versions of a workspace's files", create, list, diff, restore)
}

func (a *app) snapshotCreate(ctx context.Context, message string) error {
	return a.with(ctx, func(c *client.Client) error {
		s, err := c.Snapshot(ctx, message)
		if err != nil {
			return err
		}
		return a.item(s, func(w io.Writer) { fmt.Fprintln(w, s.ID) })
	})
}

func (a *app) snapshotList(ctx context.Context, max int) error {
	return a.with(ctx, func(c *client.Client) error {
		ss, err := c.Snapshots(ctx, max)
		if err != nil {
			return err
		}
		return items(a, ss, "snapshot files size by age message", func(s filesystem.Snapshot) []string {
			by := s.Principal
			if s.Task != "" {
				by = "task " + s.Task
			}
			return []string{s.ID, fmt.Sprint(s.Files), size(s.Bytes), by, age(s.CreatedAt), clip(s.Message, 50)}
		})
	})
}

func (a *app) snapshotDiff(ctx context.Context, from, to string) error {
	return a.with(ctx, func(c *client.Client) error {
		ds, err := c.DiffSnapshots(ctx, from, to)
		if err != nil {
			return err
		}
		if a.json {
			return items(a, ds, "", nil)
		}
		sign := map[string]string{"added": a.paint(green, "+"), "removed": a.paint(red, "-"), "modified": a.paint(yellow, "~")}
		for _, d := range ds {
			fmt.Fprintf(a.out, "%s %s\n", sign[d.Kind], cell(d.Path))
		}
		return nil
	})
}

func (a *app) snapshotRestore(ctx context.Context, id string) error {
	return a.with(ctx, func(c *client.Client) error {
		h, err := c.RestoreSnapshot(ctx, id)
		if err != nil {
			return err
		}
		return a.done(h, "the head is now as snapshot %s was: %s, %s", id, plural(h.Files, "file"), size(h.Bytes))
	})
}

func (a *app) artifactCommand() *cobra.Command {
	max := 0
	list := &cobra.Command{Use: "list", Short: "List artifacts, the newest first", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.artifactList(c.Context(), max) }}
	list.Flags().IntVar(&max, "limit", 50, "at most so many, 0 for all")
	var to string
	get := &cobra.Command{Use: "get ARTIFACT", Short: "Download an artifact: a zip of what a task left", Args: exactly("ARTIFACT"),
		Example: "  weft artifact get $id -o out.zip",
		RunE:    func(c *cobra.Command, args []string) error { return a.artifactGet(c.Context(), args[0], to) }}
	get.Flags().StringVarP(&to, "output", "o", "", "`file` to write, - for stdout (default ARTIFACT.zip)")
	return parent("artifact", groupLook, "What tasks left behind", list, get)
}

func (a *app) artifactList(ctx context.Context, max int) error {
	return a.with(ctx, func(c *client.Client) error {
		as, err := c.Artifacts(ctx, max)
		if err != nil {
			return err
		}
		return items(a, as, "artifact task attempt files size age", func(x filesystem.Artifact) []string {
			return []string{x.ID, x.Task, fmt.Sprint(x.Attempt), fmt.Sprint(x.Files), size(x.Bytes), age(x.CreatedAt)}
		})
	})
}

func (a *app) artifactGet(ctx context.Context, id, to string) error {
	if to == "" {
		to = id + ".zip"
	}
	if to != "-" && id != remote(id) {
		return fault.New(fault.Invalid, "%q is not the id of an artifact", id)
	}
	return a.with(ctx, func(c *client.Client) error {
		if to == "-" {
			_, err := c.GetArtifact(ctx, id, a.out)
			return err
		}
		var x filesystem.Artifact
		err := replaceLocal(to, func(w io.Writer) (err error) { x, err = c.GetArtifact(ctx, id, w); return err })
		if err != nil {
			return err
		}
		return a.done(x, "%s of %s in %s", plural(x.Files, "file"), size(x.Bytes), to)
	})
}
