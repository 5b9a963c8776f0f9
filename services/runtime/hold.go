package runtime

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// hold is what the node holds of the manager: an attempt, or an interactive sandbox. It knows until
// when, and is told the manager's verdicts.
type hold struct {
	item    workspace.QueueItem // of an interactive sandbox: its id as Task, its generation as Attempt
	sandbox string
	stop    chan struct{} // closed when it is to be ended and reported
	lost    chan struct{} // closed when it is no longer ours: ended, nothing reported
	active  *activity     // when it was last used

	mu       sync.Mutex
	claimed  bool // the manager has given it to us; before, a renewal would be told that it is not ours
	deadline time.Time
	box      *sandbox.Sandbox  // nil until there is one
	leases   *secrets.LeaseRef // what is to be renewed; nil where nothing was issued
	frozen   bool              // because the claim could not be renewed
	paused   bool              // because somebody wants it so; what is frozen or paused stands still
	hushed   bool              // for a moment, while its files are copied
	settling bool              // the outcome is being reported; the answer to that says whose the claim is
	over     bool              // the claim ended; no verdict matters any more
	stopping bool
	reason   string
	user     nkeys.KeyPair
	userKey  string
	jwt      string
	renewAt  time.Time // when the jwt should be replaced
}

func newHold(item workspace.QueueItem, box string, deadline time.Time) (*hold, error) {
	kp, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	pub, err := kp.PublicKey()
	if err != nil {
		return nil, err
	}
	return &hold{item: item, sandbox: box, deadline: deadline, user: kp, userKey: pub, active: &activity{}, stop: make(chan struct{}), lost: make(chan struct{})}, nil
}

// setBox says which sandbox is to be frozen and thawed. One that comes after the claim ran out is
// frozen at once.
func (h *hold) setBox(ctx context.Context, b *sandbox.Sandbox) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.box = b
	if h.frozen || h.paused {
		return b.Pause(ctx)
	}
	// One that an earlier process has frozen stays so until the claim is known to be ours.
	paused, err := b.Paused()
	h.frozen = paused
	return err
}

// confirm takes the manager's word that the claim is ours until deadline.
func (h *hold) confirm(deadline time.Time, jwt string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claimed, h.deadline = true, deadline
	if jwt != "" {
		h.setJWT(jwt, now)
	}
}

// renewable reports whether the claim is ours and not over.
func (h *hold) renewable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claimed && !h.over
}

// fresh reports whether it is renewable and has no user yet.
func (h *hold) fresh() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claimed && !h.over && h.jwt == ""
}

// setLeases says which leases are to be renewed; nil for none.
func (h *hold) setLeases(ref *secrets.LeaseRef) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leases = ref
}

// freeze stops the sandbox where it is because the claim is about to run out. It reports whether it did.
func (h *hold) freeze(ctx context.Context, now time.Time, margin time.Duration) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen || h.over || now.Before(h.deadline.Add(-margin)) {
		return false, nil
	}
	if h.box != nil {
		if err := h.box.Pause(ctx); err != nil {
			return true, err // tried again at the next look
		}
	}
	h.frozen = true
	return true, nil
}

// verdict takes the manager's answer to a renewal.
func (h *hold) verdict(ctx context.Context, v workspace.HeldReply, now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return nil
	}
	if v.UserJWT != "" {
		h.setJWT(v.UserJWT, now)
	}
	switch v.Verdict {
	case workspace.VerdictLost:
		if h.settling {
			return nil // perhaps because the report has just arrived
		}
		h.over, h.reason = true, v.Reason
		close(h.lost) // stays frozen until it is destroyed
		return nil
	case workspace.VerdictStop:
		if !h.stopping { // said again with every renewal
			h.stopping, h.reason = true, v.Reason
			close(h.stop)
		}
	}
	h.deadline = v.Deadline
	return h.thaw(ctx)
}

// thaw lets a frozen sandbox go on. The caller holds the lock.
func (h *hold) thaw(ctx context.Context) error {
	if !h.frozen {
		return nil
	}
	if h.box != nil && !h.paused && !h.hushed {
		if err := h.box.Resume(ctx); err != nil {
			return err // still frozen; the next renewal tries again
		}
	}
	h.frozen = false
	return nil
}

// pause stops the sandbox until somebody resumes it, whatever renewals say.
func (h *hold) pause(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paused {
		return nil
	}
	if err := h.box.Pause(ctx); err != nil {
		if !h.frozen {
			err = errors.Join(err, h.box.Resume(context.WithoutCancel(ctx))) // not half of it
		}
		return err
	}
	h.paused = true
	return nil
}

// resume ends a pause. A sandbox whose claim could not be renewed stays frozen for that.
func (h *hold) resume(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.paused {
		return nil
	}
	if !h.frozen {
		if err := h.box.Resume(ctx); err != nil {
			return err
		}
	}
	h.paused = false
	return nil
}

// still reports whether its processes can't run now.
func (h *hold) still() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.frozen || h.paused
}

// settle says that the outcome is being reported from now on.
func (h *hold) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settling = true
}

// end says that the claim is finished: it is neither frozen nor judged any more.
func (h *hold) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}

// stopReason is why it is to be ended.
func (h *hold) stopReason() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reason
}

// request names the claim for a renewal, and asks for a fresh JWT when the present one is old.
func (h *hold) request(now time.Time) workspace.Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := workspace.Held{QueueItem: h.item}
	if h.jwt == "" || now.After(h.renewAt) {
		held.UserKey = h.userKey
	}
	return held
}

// setJWT keeps the user JWT of the sandbox. It is replaced after half of its life.
func (h *hold) setJWT(jwt string, now time.Time) {
	h.jwt = jwt
	h.renewAt = now.Add(5 * time.Minute)
	if exp := jwtExpiry(jwt); !exp.IsZero() {
		h.renewAt = now.Add(exp.Sub(now) / 2)
	}
}

// login gives what a connection of the sandbox is completed with.
func (h *hold) login() (login, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.jwt == "" {
		return login{}, fault.New(fault.Unavailable, "sandbox %s has no user yet", h.sandbox)
	}
	return login{jwt: h.jwt, sign: h.user.Sign}, nil
}

// jwtExpiry reads when a JWT ends; zero if it does not say. Nothing is decided by it but when to ask
// for the next one.
func jwtExpiry(jwt string) time.Time {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	var c struct {
		Exp int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(b, &c) != nil || c.Exp == 0 {
		return time.Time{}
	}
	return time.Unix(c.Exp, 0)
}
