package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/supervisor"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// Mold is what a sandbox is from its start: a claim can't change it. All else of a Spec is bound when the
// sandbox is claimed.
type Mold struct {
	Pool      workspace.PoolRef // for whom it waits
	Level     string
	Image     string
	Isolation workspace.Isolation
	Resources workspace.Resources // with which it waits; see late for what a claim sets anew
}

// late are the resources that a claim sets anew. The disk's bytes bound the file systems in memory, which are
// there from the start; above the largest of those, and without a writable root, they make no difference.
func late(r workspace.Resources, i workspace.Isolation) workspace.Resources {
	r.CPUMillis, r.MemoryBytes, r.PIDs, r.OutputBytes = 0, 0, 0, 0
	r.CPUWeight, r.IOReadBPS, r.IOWriteBPS = 0, 0, 0
	largest := int64(0)
	for _, t := range Standard.Scratch {
		largest = max(largest, t.Bytes)
	}
	if !i.WritableRoot && i.Custom == nil {
		r.DiskBytes = min(r.DiskBytes, largest)
	}
	return r
}

// Shape is what two sandboxes must have in common, so that one can be claimed for the other; empty: none can. It
// is the same whoever they are for.
func (m Mold) Shape() string {
	m, err := m.resolve()
	if err != nil {
		return ""
	}
	b, _ := json.Marshal([]any{m.Level, m.Image, m.Isolation, late(m.Resources, m.Isolation)}) // plain data
	return string(b)
}

// Shape of the sandboxes that can become spec's.
func (s Spec) Shape() string {
	if s.From != "" { // a layer of its own must be there from the start
		return ""
	}
	return Mold{Level: s.Level, Image: s.Image, Isolation: s.Isolation, Resources: s.Resources}.Shape()
}

// Fits reports whether a sandbox of this mold can become spec's.
func (m Mold) Fits(spec Spec) bool {
	shape := m.Shape()
	return shape != "" && shape == spec.Shape()
}

// Same reports whether two molds make the same for the same pool.
func (m Mold) Same(o Mold) bool {
	return m.Pool == o.Pool && m.Shape() == o.Shape() && m.Resources == o.Resources
}

// Like reports whether spec's image and level are the mold's, whatever else it needs.
func (m Mold) Like(spec Spec) bool {
	a, err := LevelByName(m.Level)
	b, berr := LevelByName(spec.Level)
	return err == nil && berr == nil && a.Name == b.Name && m.Image == spec.Image
}

// resolve fills in the defaults.
func (m Mold) resolve() (Mold, error) {
	level, err := LevelByName(m.Level)
	if err != nil {
		return m, err
	}
	m.Level = level.Name
	m.Resources, err = Resolve(m.Resources)
	return m, err
}

// Fingerprint of what this node makes of a mold now: it changes with the mold, with the image's content, with what
// the level is, and with the programs that the node puts in. It may fetch the image.
func (n *Node) Fingerprint(ctx context.Context, m Mold) (string, error) {
	level, err := LevelByName(m.Level)
	if err != nil {
		return "", err
	}
	image, err := n.engine.Image(ctx, m.Image)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	made, _ := json.Marshal(level) // plain data
	fmt.Fprintln(sum, m.Shape(), image.Parent, n.cfg.Forwards, string(made))
	for _, program := range []string{n.cfg.Init, n.cfg.CLI} {
		if program == "" {
			continue
		}
		st, err := os.Stat(program)
		if err != nil {
			return "", fault.Wrap(err, fault.Unavailable, "the program %s is not on this node any more", program)
		}
		fmt.Fprintln(sum, program, st.Size(), st.ModTime().UnixNano())
	}
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// blank is what a sandbox has that nobody has claimed yet.
type blank struct {
	mold        Mold
	fingerprint string
}

// CreateBlank makes a sandbox that waits to be claimed: pristine, its process 1 connected, and nobody's. It is
// known under an id of its own until Bind. What it leaves behind when it fails is removed as by Create.
func (n *Node) CreateBlank(ctx context.Context, m Mold) (*Sandbox, error) {
	m, err := m.resolve()
	if err != nil {
		return nil, err
	}
	if err := schemas.CheckName("tenant", m.Pool.Tenant); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "a warm pool needs a tenant: %v", err)
	}
	spec := Spec{ID: schemas.NewID(), Tenant: m.Pool.Tenant, Level: m.Level, Image: m.Image, Isolation: m.Isolation, Resources: m.Resources}
	if err := errors.Join(spec.checkIsolation(), spec.checkImage()); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "a warm pool's members can't be made: %v", err)
	}
	fingerprint, err := n.Fingerprint(ctx, m)
	if err != nil {
		return nil, err
	}
	s := n.sandbox(spec)
	s.blank = &blank{mold: m, fingerprint: fingerprint}
	if err := n.build(ctx, s); err != nil {
		return s, err
	}
	s.rehearse(ctx)
	return s, nil
}

// rehearse has process 1 do what a claim and its first command will ask of it, so far as that changes nothing: to take the limits
// that it has, and to start a program that can't be there. What a program does for the first time costs it milliseconds, in
// which memory is touched and types are learnt. Nothing of a payload's runs, and nobody is told: a claim finds out whether
// the sandbox is fit.
func (s *Sandbox) rehearse(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, rehearsalTimeout)
	defer cancel()
	level, err := LevelByName(s.spec.Level)
	if err == nil {
		err = s.channel.SetLimits(ctx, supervisor.WaitingPIDs, s.limits(level).Memory)
	}
	if err == nil {
		err = s.startNothing(ctx)
	}
	if err != nil {
		s.node.log.Debug("a sandbox was made without a rehearsal", "sandbox", s.id, "error", err)
	}
}

// startNothing has process 1 start a program that can't be there, and forget it.
func (s *Sandbox) startNothing(ctx context.Context) error {
	p, err := s.channel.Start(ctx, supervisor.ProcessSpec{Argv: supervisor.Texts(wire.NoProgram), Dir: supervisor.Text("/"), Identity: s.Payload()})
	if err != nil {
		return err
	}
	_, err = p.Wait(ctx)
	return errors.Join(err, p.Forget(ctx), p.Close())
}

const rehearsalTimeout = 5 * time.Second

// Blank gives the mold of a sandbox that waits to be claimed, and what Fingerprint was when it was made.
func (s *Sandbox) Blank() (m Mold, fingerprint string, ok bool) {
	if s.blank == nil {
		return Mold{}, "", false
	}
	return s.blank.mold, s.blank.fingerprint, true
}

// withdraw takes a blank sandbox for its own end, so that nobody claims it any more.
func (s *Sandbox) withdraw() error {
	err := s.node.claim(s.id, record{})
	switch {
	case errors.Is(err, os.ErrNotExist): // it was not made so far that anybody could claim it
		return nil
	case !errors.Is(err, errTaken):
		return err
	}
	if r, err := s.node.claimed(s.id); err != nil || r != nil && r.Spec == nil {
		return err // withdrawn before, and now destroyed again
	}
	return fault.Wrap(errTaken, fault.Conflict, "sandbox %s was claimed and is no longer a pool's", s.id)
}
