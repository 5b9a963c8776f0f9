package lifecycle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/lifecycle"
)

var t0 = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }

func pending() *workspace.Task {
	return &workspace.Task{ID: "0123456789abcdefghij", State: workspace.Pending, Run: &workspace.RunSpec{TimeoutMS: 60_000}}
}

func holder(n int) lifecycle.Holder {
	return lifecycle.Holder{Attempt: n, Node: "n1", Sandbox: "sandbox0000000000000", NodeKey: "X1"}
}

func running(t *testing.T, tweak func(*workspace.Task)) *workspace.Task {
	k := pending()
	if tweak != nil {
		tweak(k)
	}
	step(t, lifecycle.Queued)(lifecycle.Admit(k, at(1)))
	step(t, lifecycle.Running)(lifecycle.Claim(k, holder(1), at(2)))
	return k
}

func step(t *testing.T, want string) func(string, error) {
	return func(got string, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func conflict(t *testing.T) func(string, error) {
	return func(got string, err error) {
		t.Helper()
		require.True(t, fault.Is(err, fault.Conflict), "got %q, %v", got, err)
	}
}

func exit(code int, reason string) workspace.Finish {
	return workspace.Finish{Outcome: workspace.Outcome{Exit: &workspace.Exit{Code: code, Reason: reason}}}
}

func nodeFault(retry bool) workspace.Finish {
	return workspace.Finish{Fault: &workspace.Fault{Code: "unavailable", Message: "no image"}, Retry: retry}
}

func TestWholeWay(t *testing.T) {
	k := running(t, nil)
	require.Equal(t, 1, k.Attempt.Number)
	require.Equal(t, "n1", k.Attempt.Node)
	c := at(3)
	step(t, lifecycle.Progressed)(lifecycle.Progress(k, holder(1), &c, nil))
	step(t, "")(lifecycle.Progress(k, holder(1), &c, nil))
	step(t, lifecycle.Complete)(lifecycle.Finish(k, holder(1), exit(0, "exited"), at(4)))
	require.Equal(t, at(4), *k.FinishedAt)
	require.Equal(t, at(3), *k.Attempt.CommandAt)

	// Nothing follows a final state.
	conflict(t)(lifecycle.Admit(k, at(5)))
	conflict(t)(lifecycle.Claim(k, holder(1), at(5)))
	conflict(t)(lifecycle.Progress(k, holder(1), &c, nil))
	conflict(t)(lifecycle.Finish(k, holder(1), exit(1, "exited"), at(5)))
	conflict(t)(lifecycle.Cancel(k, "ann", at(5)))
	step(t, "")(lifecycle.Lost(k, 1, lifecycle.ReasonNodeLost, at(5)))
	// The same report again is the same answer.
	step(t, "")(lifecycle.Finish(k, holder(1), exit(0, "exited"), at(6)))
}

func TestClaimIsFenced(t *testing.T) {
	k := pending()
	conflict(t)(lifecycle.Claim(k, holder(1), at(1)))
	step(t, lifecycle.Queued)(lifecycle.Admit(k, at(1)))
	conflict(t)(lifecycle.Claim(k, holder(2), at(1)))
	conflict(t)(lifecycle.Claim(k, holder(0), at(1)))
	step(t, lifecycle.Running)(lifecycle.Claim(k, holder(1), at(2)))
	step(t, "")(lifecycle.Claim(k, holder(1), at(3)))
	other := holder(1)
	other.Sandbox = "sandbox1111111111111"
	conflict(t)(lifecycle.Claim(k, other, at(3)))
	other = holder(1)
	other.Node = "n2"
	conflict(t)(lifecycle.Claim(k, other, at(3)))
	conflict(t)(lifecycle.Finish(k, other, exit(0, "exited"), at(3)))
}

func TestFinish(t *testing.T) {
	set := func(n int) func(*workspace.Task) { return func(k *workspace.Task) { k.MaxAttempts = n } }
	cancelled := func(k *workspace.Task) { k.MaxAttempts = 3 }
	for name, c := range map[string]struct {
		tweak  func(*workspace.Task)
		cancel bool
		f      workspace.Finish
		want   string
	}{
		"exit 0":                          {nil, false, exit(0, "exited"), lifecycle.Complete},
		"exit 1 is not tried again":       {nil, false, exit(1, "exited"), lifecycle.Failed},
		"exit 1 of several":               {set(3), false, exit(1, "exited"), lifecycle.Retrying},
		"exit 1 of one":                   {set(1), false, exit(1, "exited"), lifecycle.Failed},
		"timeout":                         {nil, false, exit(137, "timeout"), lifecycle.Failed},
		"timeout with code 0":             {nil, false, exit(0, "timeout"), lifecycle.Failed},
		"node's fault is tried again":     {nil, false, nodeFault(true), lifecycle.Retrying},
		"node's fault of one":             {set(1), false, nodeFault(true), lifecycle.Failed},
		"fault of the task":               {set(5), false, nodeFault(false), lifecycle.Failed},
		"neither exit nor fault":          {nil, false, workspace.Finish{}, lifecycle.Failed},
		"cancelled":                       {cancelled, true, exit(137, "cancelled"), lifecycle.Cancelled},
		"cancelled but it ended well":     {cancelled, true, exit(0, "exited"), lifecycle.Complete},
		"cancelled is never tried again":  {cancelled, true, nodeFault(true), lifecycle.Cancelled},
		"cancelled by itself is an error": {nil, false, exit(143, "cancelled"), lifecycle.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			k := running(t, c.tweak)
			if c.cancel {
				step(t, lifecycle.Cancelling)(lifecycle.Cancel(k, "ann", at(3)))
			}
			step(t, c.want)(lifecycle.Finish(k, holder(1), c.f, at(4)))
			require.Equal(t, c.want == lifecycle.Retrying, !k.State.Final())
			require.Equal(t, at(4), *k.Attempt.EndedAt)
		})
	}
}

func TestRetryKeepsEarlierAttempts(t *testing.T) {
	k := running(t, func(k *workspace.Task) { k.MaxAttempts, k.BackoffMS = 20, 1000 })
	for n := 1; n < 20; n++ {
		step(t, lifecycle.Retrying)(lifecycle.Finish(k, holder(n), exit(1, "exited"), at(10*n)))
		require.Equal(t, at(10*n).Add(lifecycle.Backoff(time.Second, n)), *k.NotBefore)
		step(t, lifecycle.Queued)(lifecycle.Admit(k, at(10*n+1)))
		require.Nil(t, k.NotBefore)
		require.Len(t, k.Previous, n)
		require.Equal(t, n+1, k.Attempt.Number)
		require.Empty(t, k.Attempt.Node)
		step(t, lifecycle.Running)(lifecycle.Claim(k, holder(n+1), at(10*n+2)))
		// A late repeat of the attempt before is known, anything else of it refused.
		step(t, "")(lifecycle.Finish(k, holder(n), exit(1, "exited"), at(10*n+3)))
		conflict(t)(lifecycle.Finish(k, holder(n), exit(0, "exited"), at(10*n+3)))
	}
	step(t, lifecycle.Failed)(lifecycle.Finish(k, holder(20), exit(1, "exited"), at(300)))
	require.Len(t, k.Previous, 19)
}

func TestLost(t *testing.T) {
	k := running(t, nil)
	step(t, "")(lifecycle.Lost(k, 2, lifecycle.ReasonNodeLost, at(3)))
	for n := 1; n < 5; n++ {
		step(t, lifecycle.Retrying)(lifecycle.Lost(k, n, lifecycle.ReasonNodeLost, at(10)))
		// The late finish of what was lost is refused.
		conflict(t)(lifecycle.Finish(k, holder(n), exit(0, "exited"), at(11)))
		step(t, lifecycle.Queued)(lifecycle.Admit(k, at(11)))
		conflict(t)(lifecycle.Finish(k, holder(n), exit(0, "exited"), at(11)))
		step(t, lifecycle.Running)(lifecycle.Claim(k, holder(n+1), at(12)))
	}
	step(t, lifecycle.Failed)(lifecycle.Lost(k, 5, lifecycle.ReasonNodeLost, at(20)))
	require.Equal(t, "unavailable", k.Fault.Code)
	require.Equal(t, "node-lost", k.Attempt.Outcome.Exit.Reason)

	once := running(t, func(k *workspace.Task) { k.MaxAttempts = 1 })
	step(t, lifecycle.Failed)(lifecycle.Lost(once, 1, lifecycle.ReasonNodeLost, at(3)))
	late := running(t, nil)
	step(t, lifecycle.Failed)(lifecycle.Lost(late, 1, lifecycle.ReasonTimeout, at(3)))
	require.Equal(t, "deadline", late.Fault.Code)
	gone := running(t, nil)
	step(t, lifecycle.Cancelling)(lifecycle.Cancel(gone, "ann", at(3)))
	step(t, lifecycle.Cancelled)(lifecycle.Lost(gone, 1, lifecycle.ReasonNodeLost, at(4)))
}

func TestCancelInEveryState(t *testing.T) {
	k := pending()
	step(t, lifecycle.Cancelled)(lifecycle.Cancel(k, "ann", at(1)))
	step(t, "")(lifecycle.Cancel(k, "bob", at(1)))
	require.Equal(t, "ann", k.Cancel)

	k = pending()
	step(t, lifecycle.Queued)(lifecycle.Admit(k, at(1)))
	step(t, lifecycle.Cancelled)(lifecycle.Cancel(k, "ann", at(2)))
	conflict(t)(lifecycle.Claim(k, holder(1), at(3)))

	k = running(t, nil)
	step(t, lifecycle.Cancelling)(lifecycle.Cancel(k, "ann", at(3)))
	step(t, "")(lifecycle.Cancel(k, "bob", at(3)))
	v, why := lifecycle.Verdict(k, holder(1), at(3), time.Second)
	require.Equal(t, [2]string{"stop", "cancelled"}, [2]string{v, why})

	for _, s := range []workspace.State{workspace.Complete, workspace.Error, workspace.Rejected} {
		conflict(t)(lifecycle.Cancel(&workspace.Task{State: s}, "ann", at(3)))
	}
}

func TestVerdict(t *testing.T) {
	k := running(t, nil)
	verdict := func(h lifecycle.Holder, s int) string {
		v, _ := lifecycle.Verdict(k, h, at(s), 30*time.Second)
		return v
	}
	require.Equal(t, "keep", verdict(holder(1), 3))
	require.Equal(t, "lost", verdict(holder(2), 3))
	require.Equal(t, "lost", verdict(lifecycle.Holder{Attempt: 1, Node: "n2"}, 3))
	require.Equal(t, "keep", verdict(holder(1), 92))
	require.Equal(t, "stop", verdict(holder(1), 93)) // 60 s of its own and 30 s of slack
	c := at(20)
	step(t, lifecycle.Progressed)(lifecycle.Progress(k, holder(1), &c, nil))
	require.Equal(t, "keep", verdict(holder(1), 110))
	require.Equal(t, "stop", verdict(holder(1), 111))
}

func TestBackoff(t *testing.T) {
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 1000: 5 * time.Minute} {
		require.Equal(t, want, lifecycle.Backoff(0, n), "attempt %d", n)
	}
	require.Equal(t, 5*time.Minute, lifecycle.Backoff(time.Hour, 1))
}

// FuzzSteps takes any order of steps and checks what must hold after each.
func FuzzSteps(f *testing.F) {
	f.Add([]byte{0, 1, 4}, uint8(3))
	f.Add([]byte{0, 1, 3, 5, 0, 1, 4, 2}, uint8(0))
	f.Fuzz(func(t *testing.T, steps []byte, attempts uint8) {
		k := pending()
		k.MaxAttempts = int(attempts % 21)
		finals := 0
		for i, s := range steps {
			before := *k
			now := at(i)
			h := holder(int(s>>4) % 4)
			if s&8 != 0 {
				h.Attempt = k.Attempt.Number
			}
			var ev string
			var err error
			switch s & 7 {
			case 0:
				ev, err = lifecycle.Admit(k, now)
			case 1:
				ev, err = lifecycle.Claim(k, h, now)
			case 2:
				ev, err = lifecycle.Cancel(k, "ann", now)
			case 3:
				ev, err = lifecycle.Finish(k, h, exit(1, "exited"), now)
			case 4:
				ev, err = lifecycle.Finish(k, h, exit(0, "exited"), now)
			case 5:
				ev, err = lifecycle.Lost(k, h.Attempt, lifecycle.ReasonNodeLost, now)
			case 6:
				ev, err = lifecycle.Finish(k, h, nodeFault(true), now)
			case 7:
				ev, err = lifecycle.Progress(k, h, &now, nil)
			}
			if err != nil || ev == "" {
				require.Equal(t, before, *k, "a refusal or repeat changes nothing")
			}
			require.GreaterOrEqual(t, k.Attempt.Number, before.Attempt.Number)
			if before.State.Final() {
				require.Equal(t, before, *k, "nothing follows a final state")
			} else if k.State.Final() {
				finals++
			}
		}
		require.LessOrEqual(t, finals, 1)
		require.LessOrEqual(t, len(k.Previous), 19)
	})
}
