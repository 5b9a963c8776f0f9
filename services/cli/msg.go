package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// maxWait is how long one request waits for a message; longer waits are several requests.
const maxWait = 5 * time.Second

func (a *app) msgCommand() *cobra.Command {
	c := parent("msg", groupLook, "Send and read messages", a.msgSendCommand(), a.msgReadCommand())
	c.Long = `Messages go to a principal (an agent, a person), who alone reads them, or to a channel, which
everybody in the workspace reads: its name begins with ` + workspace.ChannelPrefix + `. They are kept for a week, and reading removes
nothing. Triggers start agents on them.`
	return c
}

func (a *app) msgSendCommand() *cobra.Command {
	var o client.SendOptions
	var group workspace.Group
	c := &cobra.Command{Use: "send TO [BODY]", Short: "Send a message; without BODY it is read from stdin", Args: between(1, "TO", "BODY"),
		Example: "  weft msg send reviewer 'all done'\n  weft msg send reviewer --group audit-7 --group-size 4 < findings.json",
		RunE: func(c *cobra.Command, args []string) error {
			if (group.ID == "") != (group.Size == 0) {
				return fault.New(fault.Invalid, "--group and --group-size come together")
			}
			if group.ID != "" {
				o.Group = &group
			}
			o.Task = a.env("WEFT_TASK")
			return a.msgSend(c.Context(), args, o)
		}}
	f := c.Flags()
	f.StringVar(&o.ID, "id", "", "id of the message (default random)")
	f.StringVar(&group.ID, "group", "", "the group that the message is one of")
	f.IntVar(&group.Size, "group-size", 0, "how many messages that group has")
	return c
}

func (a *app) msgSend(ctx context.Context, args []string, o client.SendOptions) error {
	var body []byte
	var err error
	if len(args) == 2 {
		body = []byte(args[1])
	} else if body, err = a.read("-"); err != nil {
		return err
	}
	return a.with(ctx, func(c *client.Client) error {
		if err := needWorkspace(c); err != nil {
			return err
		}
		s, err := c.Send(ctx, args[0], body, o)
		if err != nil {
			return err
		}
		return a.done(s, "sent to %s, sequence %d", s.To, s.Sequence)
	})
}

type readOptions struct {
	channel string
	after   uint64
	start   bool
	limit   int
	wait    time.Duration
	follow  bool
	raw     bool
}

func (a *app) msgReadCommand() *cobra.Command {
	var o readOptions
	c := &cobra.Command{Use: "read", Short: "Read messages to oneself, or of a channel", Args: exactly(),
		Example: "  weft msg read --wait 30s\n  weft msg read --channel ch-news --after 120 -f",
		RunE:    func(c *cobra.Command, _ []string) error { return a.msgRead(c.Context(), o) }}
	f := c.Flags()
	f.StringVar(&o.channel, "channel", "", "of this channel")
	f.Uint64Var(&o.after, "after", 0, "those after this sequence (default those not yet dealt with)")
	f.BoolVar(&o.start, "from-start", false, "from the oldest that is kept")
	f.IntVar(&o.limit, "limit", 100, "at most so many, 1 to 1000")
	f.DurationVar(&o.wait, "wait", 0, "if there is none wait so long for one")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until Ctrl-C")
	f.BoolVar(&o.raw, "raw", false, "print bodies only, a line each")
	return c
}

func (a *app) msgRead(ctx context.Context, o readOptions) error {
	if o.limit < 1 || o.limit > 1000 {
		return fault.New(fault.Invalid, "--limit %d must be 1 to 1000", o.limit)
	}
	return a.with(ctx, func(c *client.Client) error {
		until := time.Now().Add(o.wait)
		for {
			wait := min(max(time.Until(until), 0), maxWait)
			if o.follow {
				wait = maxWait
			}
			ms, err := c.Messages(ctx, workspace.MessagesRequest{To: o.channel, After: o.after, FromStart: o.start && o.after == 0, Limit: o.limit, WaitMS: wait.Milliseconds()})
			if err != nil {
				return err
			}
			if o.follow {
				for _, m := range ms {
					if err := a.message(m, o.raw); err != nil {
						return err
					}
					o.after = m.Sequence
				}
				continue
			}
			if len(ms) == 0 && time.Now().Before(until) {
				continue
			}
			return a.messages(ms, o.raw)
		}
	})
}

func (a *app) messages(ms []workspace.Message, raw bool) error {
	if a.json {
		if ms == nil {
			ms = []workspace.Message{}
		}
		return a.printJSON(a.out, list{Schema, ms})
	}
	for _, m := range ms {
		if err := a.message(m, raw); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) message(m workspace.Message, raw bool) error {
	var err error
	switch {
	case a.json:
		err = a.event("message", m)
	case raw:
		_, err = fmt.Fprintf(a.out, "%s\n", m.Body)
	default:
		_, err = fmt.Fprintf(a.out, "%6d %s %s → %s  %s\n", m.Sequence, m.Time.Local().Format("15:04:05"), m.From, m.To, cell(string(m.Body)))
	}
	return err
}
