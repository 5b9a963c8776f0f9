package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

func (a *app) secretCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List the secrets, without values", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.secretList(c.Context()) }}
	rm := &cobra.Command{Use: "rm NAME", Short: "Delete a secret and its grants", Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error { return a.secretRemove(c.Context(), args[0]) }}
	grants := &cobra.Command{Use: "grants", Short: "List who may have what", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.grantList(c.Context()) }}
	revoke := &cobra.Command{Use: "revoke GRANT", Short: "Take a grant back, and the leases under it", Args: exactly("GRANT"),
		RunE: func(c *cobra.Command, args []string) error { return a.grantRevoke(c.Context(), args[0]) }}
	return parent("secret", groupHave, "Secrets, who may have them, and who has", a.secretPutCommand(), list, rm, a.grantCommand(), grants, revoke, a.leasesCommand(), a.verifyCommand())
}

func (a *app) secretPutCommand() *cobra.Command {
	var r secrets.PutRequest
	var transit bool
	var file string
	c := &cobra.Command{Use: "put NAME", Short: "Store a secret, or make a key that never leaves the vault", Args: exactly("NAME"),
		Long: "put reads the value from stdin, or asks for it on a terminal. It never takes it as an argument:\narguments are seen by everybody on the machine and kept in shell histories.",
		Example: `  weft secret put api-token
  weft secret put api-token < token.txt
  weft secret put report-key --transit`,
		RunE: func(c *cobra.Command, args []string) error {
			r.Name, r.Kind = args[0], secrets.KindKV
			if transit {
				r.Kind = secrets.KindTransit
			} else if r.KeyType != "" {
				return fault.New(fault.Invalid, "--key-type goes with --transit")
			}
			return a.secretPut(c.Context(), r, file)
		}}
	f := c.Flags()
	f.BoolVar(&transit, "transit", false, "make a signing key in the vault instead")
	f.StringVar(&r.KeyType, "key-type", "", "of a transit key (default ed25519)")
	f.StringVar(&file, "from-file", "", "read the value from this `file`, as it is")
	return c
}

func (a *app) secretPut(ctx context.Context, r secrets.PutRequest, file string) error {
	if r.Kind == secrets.KindKV {
		var err error
		if file != "" {
			var b []byte
			b, err = a.read(file)
			r.Value = string(b)
		} else {
			r.Value, err = a.secretInput("Value of " + r.Name + ": ")
		}
		if err != nil {
			return err
		}
		if r.Value == "" {
			return fault.New(fault.Invalid, "the value is empty; pipe it in, or use --from-file")
		}
	}
	return a.with(ctx, func(c *client.Client) error {
		s, err := c.PutSecret(ctx, r)
		if err != nil {
			return err
		}
		as := "file"
		if s.Kind == secrets.KindTransit {
			as = "vault"
		}
		return a.done(s, "secret %s stored, version %d; 'weft secret grant %s --agent NAME --as %s' lets an agent have it", s.Name, s.Version, s.Name, as)
	})
}

func (a *app) secretList(ctx context.Context) error {
	return a.with(ctx, func(c *client.Client) error {
		ss, err := c.Secrets(ctx, 0)
		if err != nil {
			return err
		}
		return items(a, ss, "name kind version age", func(s secrets.Secret) []string {
			return []string{s.Name, s.Kind, fmt.Sprint(s.Version), age(s.UpdatedAt)}
		})
	})
}

func (a *app) secretRemove(ctx context.Context, name string) error {
	return a.with(ctx, func(c *client.Client) error {
		if err := c.DeleteSecret(ctx, name); err != nil {
			return err
		}
		return a.done(workspace.Name{Name: name}, "secret %s deleted", name)
	})
}

func (a *app) grantCommand() *cobra.Command {
	var r secrets.GrantRequest
	var ttl time.Duration
	c := &cobra.Command{Use: "grant SECRET --agent AGENT --as file|env|vault", Short: "Let an agent have a secret", Args: exactly("SECRET"),
		Long: "file puts it at /run/secrets/NAME, env into a variable, vault lets the agent's requests for it through\nat $VAULT_ADDR. The agent's definition says which of them it uses.",
		RunE: func(c *cobra.Command, args []string) error {
			if r.Agent == "" || len(r.As) == 0 {
				return fault.New(fault.Invalid, "say who may have it and how: weft secret grant %s --agent NAME --as file", args[0])
			}
			r.Secret, r.TTLMS = args[0], ttl.Milliseconds()
			return a.grant(c.Context(), r)
		}}
	f := c.Flags()
	f.StringVar(&r.Agent, "agent", "", "who may have it")
	f.StringSliceVar(&r.As, "as", nil, "how: file, env, vault")
	f.DurationVar(&ttl, "ttl", 0, "of a lease; it is renewed while the sandbox lives (default 1m)")
	return c
}

func (a *app) grant(ctx context.Context, r secrets.GrantRequest) error {
	return a.with(ctx, func(c *client.Client) error {
		g, err := c.GrantSecret(ctx, r)
		if err != nil {
			return err
		}
		return a.done(g, "%s may have %s as %v, grant %s", g.Agent, g.Secret, g.As, g.ID)
	})
}

func (a *app) grantList(ctx context.Context) error {
	return a.with(ctx, func(c *client.Client) error {
		gs, err := c.Grants(ctx, 0)
		if err != nil {
			return err
		}
		return items(a, gs, "grant secret agent as lease by age", func(g secrets.Grant) []string {
			return []string{g.ID, g.Secret, g.Agent, fmt.Sprint(g.As), leaseTime(g.TTLMS), g.GrantedBy, age(g.CreatedAt)}
		})
	})
}

func leaseTime(ms int64) string {
	if ms == 0 {
		return "default"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

// revoked is what revoking prints with --json.
type revoked struct {
	ID     string `json:"id"`
	Leases int    `json:"leases"`
}

func (a *app) grantRevoke(ctx context.Context, id string) error {
	return a.with(ctx, func(c *client.Client) error {
		n, err := c.RevokeGrant(ctx, id)
		if err != nil {
			return err
		}
		return a.done(revoked{id, n}, "grant %s taken back, %s revoked", id, plural(n, "lease"))
	})
}

func (a *app) leasesCommand() *cobra.Command {
	var active bool
	list := &cobra.Command{Use: "leases", Short: "List what sandboxes were given", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.leaseList(c.Context(), active) }}
	list.Flags().BoolVar(&active, "active", false, "only those that hold")
	revoke := &cobra.Command{Use: "revoke SANDBOX", Short: "End a sandbox's leases", Args: exactly("SANDBOX"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(cl *client.Client) error {
				n, err := cl.RevokeLeases(c.Context(), args[0])
				if err != nil {
					return err
				}
				return a.done(revoked{args[0], n}, "%s revoked", plural(n, "lease"))
			})
		}}
	list.AddCommand(revoke)
	return list
}

func (a *app) leaseList(ctx context.Context, active bool) error {
	return a.with(ctx, func(c *client.Client) error {
		all, err := c.Leases(ctx, 0)
		if err != nil {
			return err
		}
		ls := []secrets.Lease{}
		for _, l := range all {
			if !active || l.State != "revoked" {
				ls = append(ls, l)
			}
		}
		return items(a, ls, "sandbox task agent secrets state expires reason", func(l secrets.Lease) []string {
			expires := ""
			if l.State != "revoked" {
				expires = "in " + short(time.Until(l.ExpiresAt))
			}
			return []string{l.Sandbox, l.Task, l.Agent, fmt.Sprint(l.Secrets), l.State, expires, l.Reason}
		})
	})
}

func (a *app) verifyCommand() *cobra.Command {
	var r secrets.VerifyRequest
	var data string
	c := &cobra.Command{Use: "verify KEY --data FILE --signature SIGNATURE", Short: "Check a signature that a transit key made", Args: exactly("KEY"),
		Long:    "verify exits with 0 if the signature holds, else with 1. SIGNATURE is as the vault gave it, vault:v1:…, or @file.",
		Example: "  weft secret verify report-key --data report.json --signature @report.sig",
		RunE: func(c *cobra.Command, args []string) error {
			r.Name = args[0]
			return a.verify(c.Context(), r, data)
		}}
	c.Flags().StringVar(&data, "data", "", "`file` that was signed, - for stdin")
	c.Flags().StringVar(&r.Signature, "signature", "", "the signature, or @file")
	return c
}

func (a *app) verify(ctx context.Context, r secrets.VerifyRequest, data string) error {
	if data == "" || r.Signature == "" {
		return fault.New(fault.Invalid, "verify takes --data FILE and --signature SIGNATURE")
	}
	var err error
	if r.Data, err = a.read(data); err != nil {
		return err
	}
	if r.Signature[0] == '@' {
		b, err := a.read(r.Signature[1:])
		if err != nil {
			return err
		}
		r.Signature = string(trim(b))
	}
	return a.with(ctx, func(c *client.Client) error {
		ok, err := c.VerifySignature(ctx, r)
		if err != nil {
			return err
		}
		if a.json {
			err = a.printJSON(a.out, one{Schema, secrets.VerifyReply{Valid: ok}})
		} else if ok {
			a.say("%s", a.paint(green, "the signature holds"))
		} else {
			a.say("weft: the signature does not hold: the data, the key or the signature is another one")
		}
		if err == nil && !ok {
			return exitCode(ExitFailed)
		}
		return err
	})
}
