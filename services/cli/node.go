package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

func (a *app) nodeCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List the nodes", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.nodeList(c.Context()) }}
	var undo bool
	drain := &cobra.Command{Use: "drain NODE", Short: "Give a node nothing new; what it runs goes on", Args: exactly("NODE"),
		RunE: func(c *cobra.Command, args []string) error { return a.nodeDrain(c.Context(), args[0], undo) }}
	drain.Flags().BoolVar(&undo, "undo", false, "let it take work again")
	cleaned := &cobra.Command{Use: "cleaned", Short: "Show what each node last removed that belonged to no record", Args: exactly(),
		Long: "Show what each node last removed that belonged to no record: what was left when a process was killed. It is for the operator.",
		RunE: func(c *cobra.Command, _ []string) error { return a.nodeCleaned(c.Context()) }}
	return parent("node", groupMesh, "The machines that run sandboxes", list, drain, cleaned)
}

func (a *app) nodeList(ctx context.Context) error {
	return a.with(ctx, func(c *client.Client) error {
		ns, err := c.Nodes(ctx)
		if err != nil {
			return err
		}
		return items(a, ns, "node state used slots disk_free version seen reason", func(n workspace.NodeRecord) []string {
			return []string{n.Node, n.State, fmt.Sprint(n.Used), fmt.Sprint(n.Slots), size(n.DiskFree), n.Version, age(n.SeenAt) + " ago", n.Reason}
		})
	})
}

func (a *app) nodeDrain(ctx context.Context, name string, undo bool) error {
	return a.operate(ctx, func(o *client.Operator) error {
		n, err := o.DrainNode(ctx, name, undo)
		if err != nil {
			return err
		}
		return a.done(n, "node %s is %s", n.Node, n.State)
	})
}

// leftover is one thing that a node removed.
type leftover struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"`
	workspace.CleanedItem
}

func (a *app) nodeCleaned(ctx context.Context) error {
	return a.operate(ctx, func(o *client.Operator) error {
		ns, err := o.Nodes(ctx)
		if err != nil {
			return err
		}
		var all []leftover
		for _, n := range ns {
			if n.Cleaned == nil {
				continue
			}
			for _, i := range n.Cleaned.Items {
				all = append(all, leftover{n.Node, n.Cleaned.At, i})
			}
		}
		return items(a, all, "node removed kind id", func(l leftover) []string {
			return []string{l.Node, age(l.At) + " ago", l.Kind, l.ID}
		})
	})
}

func (a *app) dlqCommand() *cobra.Command {
	var filter workspace.DLQList
	max := 0
	list := &cobra.Command{Use: "list", Short: "List dead letters, the oldest first", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.dlqList(c.Context(), filter, max) }}
	list.Flags().StringVar(&filter.Tenant, "tenant", "", "of this tenant")
	list.Flags().StringVar(&filter.Consumer, "consumer", "", "of this consumer")
	list.Flags().IntVar(&max, "limit", 100, "at most so many, 0 for all")
	act := func(use, short, word string, do func(*client.Operator, context.Context, ...uint64) (int, error)) *cobra.Command {
		return &cobra.Command{Use: use + " SEQUENCE...", Short: short, Args: oneOrMore("SEQUENCE"), RunE: func(c *cobra.Command, args []string) error {
			return a.dlqAct(c.Context(), args, word, do)
		}}
	}
	d := parent("dlq", groupMesh, "Messages that could not be decoded or delivered", list,
		act("redrive", "Send dead letters to where they were going", "redriven", (*client.Operator).Redrive),
		act("drop", "Forget dead letters", "dropped", (*client.Operator).Drop))
	d.Long = "These commands are for the operator: they need the mesh's keys."
	return d
}

func (a *app) dlqList(ctx context.Context, filter workspace.DLQList, max int) error {
	return a.operate(ctx, func(o *client.Operator) error {
		ls, err := o.DeadLetters(ctx, filter, max)
		if err != nil {
			return err
		}
		return items(a, ls, "sequence age subject stream size reason", func(l workspace.DeadLetter) []string {
			return []string{fmt.Sprint(l.Sequence), age(l.Time), l.Subject, l.Stream, size(int64(len(l.Body))), l.Reason}
		})
	})
}

// acted is what redrive and drop print with --json.
type acted struct {
	Done int `json:"done"`
}

func (a *app) dlqAct(ctx context.Context, args []string, word string, do func(*client.Operator, context.Context, ...uint64) (int, error)) error {
	var seqs []uint64
	for _, s := range args {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || n == 0 {
			return fault.New(fault.Invalid, "%q is not a sequence; 'weft dlq list' shows them", s)
		}
		seqs = append(seqs, n)
	}
	return a.operate(ctx, func(o *client.Operator) error {
		n, err := do(o, ctx, seqs...)
		if err != nil {
			return err
		}
		return a.done(acted{n}, "%s %s", plural(n, "dead letter"), word)
	})
}
