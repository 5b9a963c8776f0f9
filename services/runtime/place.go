package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nkeys"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// Modes in which a run sees the workspace's files.
const (
	filesNone     = "none"
	filesReadOnly = "readonly"
)

// place is what one run needs around its command: a sandbox, its files, its credentials.
type place struct {
	s    *Service
	h    *hold
	ref  secrets.LeaseRef
	run  workspace.RunSpec
	spec sandbox.Spec
	box  *sandbox.Sandbox
	from *parent // whose files it begins with; nil for none

	input       []byte
	traceparent string
}

// kept is what is remembered of a sandbox in memory only, for the process after this one.
type kept struct {
	Issued secrets.Issued `json:"issued"`
	Leases int            `json:"leases"`
	Seed   string         `json:"seed"` // of the sandbox's NATS user
	JWT    string         `json:"jwt"`
}

// mine marks an error as this node's own: another node may have what is missing here.
type mine struct{ error }

func (m mine) Unwrap() error { return m.error }

// make gets everything at the same time, and puts it together. What it leaves behind when it fails is
// for the caller to remove: the sandbox, the overlay, the leases.
func (p *place) make(ctx context.Context) (*sandbox.Sandbox, kept, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		failed   error
		prepared filesystem.Prepared
		k        kept
	)
	do := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				mu.Lock()
				if failed == nil {
					failed = err // the first; the others may only be its echo
				}
				mu.Unlock()
				cancel(err)
			}
		})
	}
	do(func() (err error) { p.box, err = p.create(ctx); failpoint.Hit(fpAfterCreate); return err })
	if p.run.Files != filesNone {
		do(func() (err error) { prepared, err = p.prepare(ctx); failpoint.Hit(fpAfterPrepare); return err })
	}
	if len(p.run.Secrets) > 0 {
		do(func() (err error) { k.Issued, k.Leases, err = p.issue(ctx); failpoint.Hit(fpAfterIssue); return err })
	}
	wg.Wait()
	if failed != nil {
		return p.box, k, failed
	}
	return p.box, k, p.furnish(ctx, prepared, k)
}

// create takes a sandbox from a warm pool, or makes one.
func (p *place) create(ctx context.Context) (*sandbox.Sandbox, error) {
	box := p.s.warm.claim(ctx, p.spec)
	if box == nil {
		var err error
		if box, err = p.cold(ctx); err != nil {
			return nil, mine{err}
		}
	}
	return box, p.h.setBox(ctx, box)
}

func (p *place) cold(ctx context.Context) (*sandbox.Sandbox, error) {
	defer p.s.warm.startCold()()
	return p.s.node.Create(ctx, p.spec)
}

func (p *place) prepare(ctx context.Context) (filesystem.Prepared, error) {
	ctx, cancel := context.WithTimeout(ctx, p.s.cfg.timing.merge)
	defer cancel()
	return p.s.cfg.Files.Prepare(ctx, prepareOf(p))
}

// prepareOf is what is asked of the filesystem service.
func prepareOf(p *place) filesystem.Prepare {
	req := filesystem.Prepare{Tenant: p.ref.Tenant, Workspace: p.ref.Workspace, Owner: p.ref.Task, Attempt: p.ref.Attempt,
		Sandbox: p.ref.Sandbox, Mode: p.run.Files, DiskBytes: p.spec.Resources.DiskBytes}
	if req.Mode == "" {
		req.Mode = "private"
	}
	if req.Owner == "" {
		req.Owner = req.Sandbox
	}
	if p.from != nil {
		req.From = p.from.id
	}
	return req
}

// issue asks for the credentials and opens their seal.
func (p *place) issue(ctx context.Context) (secrets.Issued, int, error) {
	var issued secrets.Issued
	ctx, cancel := context.WithTimeout(ctx, p.s.cfg.timing.ask)
	defer cancel()
	rep, err := p.s.cfg.Secrets.Issue(ctx, secrets.IssueRequest(p.ref))
	if err != nil {
		return issued, 0, err
	}
	b, err := p.s.key.Open(rep.Sealed, rep.SealedBy)
	if err == nil {
		err = json.Unmarshal(b, &issued)
	}
	if err != nil {
		// The cause could quote what was sealed.
		return secrets.Issued{}, 0, fault.New(fault.Internal, "the credentials are not sealed to this node's key")
	}
	return issued, rep.Leases, nil
}

// furnish puts the parts together: mounts, files, and what has to be remembered.
func (p *place) furnish(ctx context.Context, prepared filesystem.Prepared, k kept) error {
	if p.run.Files != filesNone {
		if p.from != nil {
			if err := p.box.TakeOver(ctx, prepared, p.from.first); err != nil {
				return mine{fault.Wrap(err, fault.CodeOf(err), "the other sandbox's files can't be taken over")}
			}
		}
		if err := p.box.MountWorkspace(prepared, p.run.Files == filesReadOnly); err != nil {
			return mine{fault.Wrap(err, fault.Unavailable, "the workspace's files can't be mounted")}
		}
	}
	if err := p.box.WriteSecrets(k.Issued.Files); err != nil {
		return mine{err}
	}
	if len(p.input) == 0 {
		p.input = []byte("null")
	}
	if err := p.box.WriteInput(p.input); err != nil {
		return mine{fault.Wrap(err, fault.Unavailable, "the input can't be written")}
	}
	if err := p.remember(k); err != nil {
		return mine{fault.Wrap(err, fault.Unavailable, "the sandbox's state can't be kept")}
	}
	return ctx.Err()
}

// remember keeps k and the sandbox's NATS user.
func (p *place) remember(k kept) error {
	p.h.mu.Lock()
	seed, err := p.h.user.Seed()
	k.Seed, k.JWT = string(seed), p.h.jwt
	p.h.mu.Unlock()
	if err != nil {
		return err
	}
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return p.box.Keep(b)
}

// recall takes up again what an earlier process remembered of a sandbox whose place was complete.
func recall(box *sandbox.Sandbox, h *hold) (k kept, err error) {
	b, err := box.Kept()
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	var user nkeys.KeyPair
	if err == nil {
		user, err = nkeys.FromSeed([]byte(k.Seed))
	}
	var pub string
	if err == nil {
		pub, err = user.PublicKey()
	}
	if err != nil {
		return k, fault.Wrap(err, fault.Unavailable, "the sandbox can't be taken up again")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.user, h.userKey = user, pub
	if k.JWT != "" {
		// Whoever renews it next is asked at once: how old it is, is not known.
		h.jwt = k.JWT
	}
	return k, nil
}

// environment of the command. What stands later wins: nobody can pretend to be another task.
func (p *place) environment(ctx context.Context, k kept, box *sandbox.Sandbox) ([]string, error) {
	image, err := box.ImageEnv(ctx)
	if err != nil {
		return nil, mine{err}
	}
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": sandbox.HomePath, "TMPDIR": "/tmp",
		"HOSTNAME": p.spec.Principal,
	}
	for name, v := range image {
		env[name] = v
	}
	if box.Spec().Isolation.RootInside {
		env["HOME"] = box.Home() // the image says another user's
	}
	for name, v := range p.run.Env {
		env[name] = v
	}
	for name, v := range k.Issued.Env {
		env[name] = v
	}
	for name, v := range p.identity() {
		env[name] = v
	}
	out := make([]string, 0, len(env))
	for name, v := range env {
		out = append(out, name+"="+v)
	}
	return out, nil
}

// identity is who the command is, and where it reaches the mesh and Vault.
func (p *place) identity() map[string]string {
	r := p.ref
	env := map[string]string{
		"WEFT_TENANT": r.Tenant, "WEFT_WORKSPACE": r.Workspace, "WEFT_PRINCIPAL": p.spec.Principal, "WEFT_SANDBOX": r.Sandbox,
		"WEFT_INPUT": sandbox.InputPath, "NATS_URL": "nats://127.0.0.1:4222", "VAULT_ADDR": "http://127.0.0.1:8200",
		"NATS_INBOX_PREFIX": fmt.Sprintf("_INBOX.%s.%s", p.spec.Principal, r.Sandbox),
	}
	if r.Task != "" {
		env["WEFT_TASK"], env["WEFT_ATTEMPT"] = r.Task, fmt.Sprint(r.Attempt)
	}
	if p.traceparent != "" {
		env["TRACEPARENT"] = p.traceparent
	}
	return env
}

// wire gives the fault that is reported for err, and whether another try makes sense.
func wire(err error) (*workspace.Fault, bool) {
	code, text := fault.Public(err)
	var own mine
	retry := passing(err) || errors.As(err, &own) && code == schemas.Exhausted
	return &workspace.Fault{Code: string(code), Message: text}, retry
}
