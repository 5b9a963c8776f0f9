package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/memory"
)

func trim(b []byte) []byte { return bytes.TrimSpace(b) }

func (a *app) memoryCommand() *cobra.Command {
	max := 0
	history := &cobra.Command{Use: "history KEY", Short: "Show every version of a fact, the newest first", Args: exactly("KEY"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(cl *client.Client) error {
				is, err := cl.MemoryHistory(c.Context(), args[0], max)
				if err != nil {
					return err
				}
				return a.memories(is)
			})
		}}
	history.Flags().IntVar(&max, "limit", 0, "at most so many (default all)")
	c := parent("memory", groupHave, "What agents remember", a.memoryAddCommand(), a.memorySupersedeCommand(), a.memoryGetCommand(), a.memorySearchCommand(),
		a.memoryListCommand(), history, a.memoryForgetCommand(), a.memoryContextCommand())
	c.Long = "Items are episodic (what happened), semantic (what is so, usually under a key) or procedural (how\nsomething is done). A fact is superseded, never overwritten: its versions stay."
	return c
}

// memoryText is the text of an item: the flag's, or stdin.
func (a *app) memoryText(text, data string) (string, error) {
	if text != "" || data == "-" {
		return text, nil
	}
	b, err := a.read("-")
	return strings.TrimRight(string(b), "\n"), err
}

func (a *app) memoryAddCommand() *cobra.Command {
	var r memory.AddRequest
	var kind, data string
	c := &cobra.Command{Use: "add", Short: "Remember something; without --text it is read from stdin", Args: exactly(),
		Example: `  weft memory add --key build/command --text 'make build'
  weft memory add --kind episodic --text 'The tests failed on 31 January'
  echo '{"lines": 120}' | weft memory add --key src/lines --text 'src has 120 lines' --data -`,
		RunE: func(c *cobra.Command, _ []string) error {
			r.Kind, r.Task = memory.Kind(kind), a.env("WEFT_TASK")
			return a.memoryAdd(c.Context(), r, data)
		}}
	f := c.Flags()
	f.StringVar(&kind, "kind", "", "episodic, semantic (default) or procedural")
	f.StringVar(&r.Key, "key", "", "stable name of a fact")
	f.StringVar(&r.Text, "text", "", "what to remember")
	f.StringVar(&data, "data", "", "for programs: a JSON object, @file, or - for stdin")
	f.StringSliceVar(&r.Tags, "tag", nil, "tags")
	f.BoolVar(&r.Pinned, "pinned", false, "first in every context")
	f.StringVar(&r.SubmissionKey, "submission-key", "", "a repeat with the same key changes nothing")
	return c
}

func (a *app) memoryAdd(ctx context.Context, r memory.AddRequest, data string) error {
	var err error
	if r.Text, err = a.memoryText(r.Text, data); err != nil {
		return err
	}
	if r.Data, err = a.value("data", data); err != nil {
		return err
	}
	return a.with(ctx, func(c *client.Client) error {
		rep, err := c.AddMemory(ctx, r)
		if err != nil {
			return err
		}
		return a.item(rep.Item, func(w io.Writer) { fmt.Fprintln(w, rep.Item.ID) })
	})
}

func (a *app) memorySupersedeCommand() *cobra.Command {
	var r memory.SupersedeRequest
	var data string
	var expect int
	c := &cobra.Command{Use: "supersede --key KEY | --id ID", Short: "Put a new version in the place of a fact; without --text it is read from stdin", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if (r.Key == "") == (r.ID == "") {
				return fault.New(fault.Invalid, "say which item: --key or --id")
			}
			if c.Flags().Changed("if-version") {
				r.ExpectedVersion = &expect
			}
			r.Task = a.env("WEFT_TASK")
			return a.memorySupersede(c.Context(), r, data)
		}}
	f := c.Flags()
	f.StringVar(&r.Key, "key", "", "key of the fact")
	f.StringVar(&r.ID, "id", "", "or the item's id")
	f.StringVar(&r.Text, "text", "", "what is so now")
	f.StringVar(&data, "data", "", "for programs: a JSON object, @file, or - for stdin")
	f.StringSliceVar(&r.Tags, "tag", nil, "tags (default those of the old version)")
	f.IntVar(&expect, "if-version", 0, "only if this is the present version")
	f.BoolVar(&r.Upsert, "upsert", false, "add it if there is none")
	return c
}

func (a *app) memorySupersede(ctx context.Context, r memory.SupersedeRequest, data string) error {
	var err error
	if r.Text, err = a.memoryText(r.Text, data); err != nil {
		return err
	}
	if r.Data, err = a.value("data", data); err != nil {
		return err
	}
	return a.with(ctx, func(c *client.Client) error {
		rep, err := c.SupersedeMemory(ctx, r)
		if err != nil {
			return err
		}
		return a.item(rep.Item, func(w io.Writer) { fmt.Fprintln(w, rep.Item.ID) })
	})
}

func (a *app) memoryGetCommand() *cobra.Command {
	var r memory.GetRequest
	var at string
	c := &cobra.Command{Use: "get [ID | --key KEY]", Short: "Show one item", Args: between(0, "ID"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				r.ID = args[0]
			}
			if (r.Key == "") == (r.ID == "") {
				return fault.New(fault.Invalid, "say which item: its id or --key")
			}
			var err error
			if r.AsOf, err = since("as-of", at); err != nil {
				return err
			}
			return a.with(c.Context(), func(cl *client.Client) error {
				i, err := cl.Memory(c.Context(), r)
				if err != nil {
					return err
				}
				return a.item(i, func(w io.Writer) { describeMemory(w, i) })
			})
		}}
	c.Flags().StringVar(&r.Key, "key", "", "key of a fact")
	c.Flags().StringVar(&at, "as-of", "", "as it was then: 10m ago, or a time")
	return c
}

func describeMemory(w io.Writer, i memory.Item) {
	by := i.Source.Principal
	if i.Source.Task != "" {
		by += ", task " + i.Source.Task
	}
	valid := "since " + i.ValidFrom.Format("2006-01-02 15:04:05")
	if i.ValidTo != nil {
		valid += " until " + i.ValidTo.Format("2006-01-02 15:04:05")
	}
	fields(w, "id", i.ID, "kind", string(i.Kind), "key", i.Key, "version", fmt.Sprint(i.Version), "valid", valid, "from", by,
		"tags", strings.Join(i.Tags, ","), "data", string(i.Data), "text", i.Text)
}

func (a *app) memories(is []memory.Item) error {
	return items(a, is, "id kind key version from age text", func(i memory.Item) []string {
		return []string{i.ID, string(i.Kind), i.Key, fmt.Sprint(i.Version), i.Source.Principal, age(i.CreatedAt), clip(i.Text, 60)}
	})
}

func memoryKinds(in []string) []memory.Kind {
	var out []memory.Kind
	for _, k := range in {
		out = append(out, memory.Kind(k))
	}
	return out
}

func (a *app) memorySearchCommand() *cobra.Command {
	var r memory.SearchRequest
	var kinds []string
	c := &cobra.Command{Use: "search QUERY...", Short: "Find the items that match best", Args: oneOrMore("QUERY"),
		RunE: func(c *cobra.Command, args []string) error {
			r.Query, r.Kinds = strings.Join(args, " "), memoryKinds(kinds)
			return a.with(c.Context(), func(cl *client.Client) error {
				rep, err := cl.SearchMemory(c.Context(), r)
				if err != nil {
					return err
				}
				return items(a, rep.Hits, "id score kind key text", func(h memory.Hit) []string {
					return []string{h.Item.ID, fmt.Sprintf("%.2f", h.Score), string(h.Item.Kind), h.Item.Key, clip(h.Snippet, 80)}
				})
			})
		}}
	f := c.Flags()
	f.StringSliceVar(&kinds, "kind", nil, "only these kinds")
	f.StringSliceVar(&r.Tags, "tag", nil, "with all of these tags")
	f.IntVar(&r.Limit, "limit", 10, "at most so many, 1 to 100")
	return c
}

func filterFlags(c *cobra.Command, f *memory.Filter, kinds *[]string) {
	c.Flags().StringSliceVar(kinds, "kind", nil, "only these kinds")
	c.Flags().StringSliceVar(&f.Tags, "tag", nil, "with all of these tags")
	c.Flags().StringVar(&f.Key, "key", "", "with this key")
	c.Flags().StringVar(&f.KeyPrefix, "key-prefix", "", "with keys that begin so")
	c.Flags().StringVar(&f.Principal, "from", "", "that this principal added")
	c.Flags().StringVar(&f.Task, "task", "", "that this task added")
}

func (a *app) memoryListCommand() *cobra.Command {
	var r memory.ListRequest
	var kinds []string
	limit := 0
	c := &cobra.Command{Use: "list", Short: "List items, the newest first", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			r.Filter.Kinds = memoryKinds(kinds)
			return a.with(c.Context(), func(cl *client.Client) error {
				is, err := cl.Memories(c.Context(), r, limit)
				if err != nil {
					return err
				}
				return a.memories(is)
			})
		}}
	filterFlags(c, &r.Filter, &kinds)
	c.Flags().BoolVar(&r.AllVersions, "all-versions", false, "those that were superseded, too")
	c.Flags().IntVar(&limit, "limit", 50, "at most so many, 0 for all")
	return c
}

// forgotten is what forget prints with --json.
type forgotten struct {
	Count int `json:"count"`
}

func (a *app) memoryForgetCommand() *cobra.Command {
	var f memory.Filter
	var kinds []string
	var r memory.ForgetRequest
	c := &cobra.Command{Use: "forget [ID]", Short: "Delete items for good: one, or all that the flags pick", Args: between(0, "ID"),
		RunE: func(c *cobra.Command, args []string) error {
			f.Kinds = memoryKinds(kinds)
			if len(args) == 1 {
				r.ID = args[0]
			} else {
				r.Filter = &f
			}
			return a.with(c.Context(), func(cl *client.Client) error {
				n, err := cl.ForgetMemory(c.Context(), r)
				if err != nil {
					return err
				}
				return a.done(forgotten{n}, "%s forgotten", plural(n, "item"))
			})
		}}
	filterFlags(c, &f, &kinds)
	c.Flags().BoolVar(&r.All, "all", false, "everything is meant")
	return c
}

func (a *app) memoryContextCommand() *cobra.Command {
	var r memory.ContextRequest
	c := &cobra.Command{Use: "context [QUERY...]", Short: "Show what an agent would have before its eyes",
		RunE: func(c *cobra.Command, args []string) error {
			r.Query = strings.Join(args, " ")
			return a.with(c.Context(), func(cl *client.Client) error {
				rep, err := cl.MemoryContext(c.Context(), r)
				if err != nil {
					return err
				}
				return a.item(rep, func(w io.Writer) {
					for _, b := range rep.Blocks {
						fmt.Fprintf(w, "[%s %s %s] %s\n", b.Section, b.Kind, cell(b.Key), b.Text)
					}
					a.say("%d of %d tokens, %d items had no room", rep.Tokens, rep.Budget, rep.Omitted)
				})
			})
		}}
	c.Flags().IntVar(&r.Budget, "budget", 0, "tokens (default 4000)")
	return c
}
