package runtime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func TestDemandIsThePeakOfTheLastTenMinutes(t *testing.T) {
	var d demand
	require.Equal(t, 0, d.peak(noon))
	ask := func(at time.Duration, n int) {
		for range n {
			d.note(noon.Add(at))
		}
	}
	ask(0, 3)
	require.Equal(t, 3, d.peak(noon))
	ask(4*time.Second, 2)
	ask(6*time.Second, 4)
	require.Equal(t, 9, d.peak(noon.Add(6*time.Second)), "a burst over two slots is one")
	ask(time.Minute, 5)
	require.Equal(t, 9, d.peak(noon.Add(time.Minute)), "the larger one counts")
	require.Equal(t, 9, d.peak(noon.Add(9*time.Minute+59*time.Second)))
	require.Equal(t, 5, d.peak(noon.Add(10*time.Minute+10*time.Second)), "what is older is forgotten")
	require.Equal(t, 0, d.peak(noon.Add(24*time.Hour)))
	ask(0, 100)
	require.Equal(t, 100, d.peak(noon), "a clock that was set back harms nobody")
}

func TestTheTargetLiesBetweenMinAndMax(t *testing.T) {
	for _, c := range []struct{ min, max, asked, want int }{
		{2, 5, 0, 2}, {2, 5, 1, 2}, {2, 5, 4, 4}, {2, 5, 50, 5}, {0, 5, 0, 0}, {9, 5, 0, 5},
	} {
		p := &pool{want: workspace.WantedPool{Min: c.min, Max: c.max}}
		for range c.asked {
			p.demand.note(noon)
		}
		require.Equal(t, c.want, p.target(noon), "%+v", c)
		require.Equal(t, c.want, p.missing(noon), "%+v", c)
		p.making = 1
		require.Equal(t, max(0, c.want-1), p.missing(noon), "%+v", c)
		p.retryAt = noon.Add(time.Second)
		require.Zero(t, p.missing(noon), "not while it pauses")
		p.retryAt, p.making, p.absent = time.Time{}, 0, 1
		require.Zero(t, p.missing(noon), "not while it may be no longer wanted")
	}
}

func TestWhatIsSuperfluousInAPool(t *testing.T) {
	for _, c := range []struct {
		name    string
		members string // oldest first: o old, f fresh, x of another template, d dead
		min     int
		making  int
		out     string
	}{
		{"all is well", "fff", 3, 0, ""},
		{"more than wanted: the oldest go", "off", 1, 0, "of"},
		{"dead ones go at once", "fdf", 3, 0, "d"},
		{"of another template too", "xxf", 3, 0, "xx"},
		{"old ones one at a time", "ooo", 3, 0, "o"},
		{"not while one is missing", "oo", 3, 0, ""},
		{"but while it is being made", "oo", 3, 1, "o"},
		{"a pool of none", "f", 0, 0, "f"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &pool{want: workspace.WantedPool{Min: c.min, Max: c.min, MaxAgeMS: 60_000}, fingerprint: "now", making: c.making}
			kind := map[*member]byte{}
			for i := range len(c.members) {
				m := &member{made: noon.Add(-time.Second), fingerprint: "now"}
				switch c.members[i] {
				case 'o':
					m.made = noon.Add(-time.Hour)
				case 'x':
					m.fingerprint = "before"
				}
				kind[m] = c.members[i]
				p.members = append(p.members, m)
			}
			var out string
			for _, m := range p.superfluous(noon, func(m *member) bool { return kind[m] == 'd' }) {
				out += string(kind[m])
			}
			require.Equal(t, c.out, out)
			require.Len(t, p.members, len(c.members)-len(c.out))
		})
	}
}

func TestHowManyMembersMayBeBegun(t *testing.T) {
	long := time.Minute
	for _, c := range []struct {
		name  string
		state machineState
		want  int
	}{
		{"idle", machineState{sinceLast: long}, 2},
		{"one is being made", machineState{making: 1}, 1},
		{"two are", machineState{making: 2}, 0},
		{"draining, or short of disk or memory", machineState{closed: true, sinceLast: long}, 0},
		{"busy: one by one", machineState{busy: true, sinceLast: long}, 1},
		{"busy, and one is being made", machineState{busy: true, making: 1, sinceLast: long}, 0},
		{"busy: with a pause", machineState{busy: true, sinceLast: 10 * time.Millisecond}, 0},
		{"a member was just handed over", machineState{claimed: true, sinceLast: long}, 0},
		{"a run starts cold", machineState{cold: 1, sinceLast: 10 * time.Millisecond}, 0},
		{"runs start cold, and just one was begun", machineState{cold: 1, sinceLast: 1500 * time.Millisecond}, 0},
		{"runs start cold all the time", machineState{cold: 5, sinceLast: long}, 1},
	} {
		c.state.pause = time.Second
		require.Equal(t, c.want, c.state.mayBegin(), c.name)
	}
}

func TestClaimsGoBeforeMembers(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var c claims
	require.False(t, c.pause(start), "nothing was claimed")
	require.True(t, c.note(at(0)))
	require.True(t, c.pause(at(140)))
	require.False(t, c.pause(at(150)))
	for i := range 100 { // a burst is let through
		require.Equal(t, i == 0, c.note(at(1000+5*i)))
	}
	require.True(t, c.pause(at(1600)))
	require.False(t, c.pause(at(1650)))
	c = claims{}
	for i := range 1000 { // one after the other, for ever
		c.note(at(5000 + 100*i))
	}
	require.False(t, c.pause(at(5000+100*999)))
	c.n = 0 // a member was begun
	require.False(t, c.pause(at(5000+100*999)))
	require.True(t, c.note(at(5000+100*1000)))
	require.True(t, c.pause(at(5000+100*1000+1)))
	for i := range 2000 {
		c.note(at(5000 + 100*1000 + 20*i))
		if !c.pause(at(5000 + 100*1000 + 20*i)) {
			require.LessOrEqual(t, 20*i, int(maxPause/time.Millisecond))
			return
		}
	}
	require.Fail(t, "claims kept the pool from being filled")
}

func TestWhoseAPoolIs(t *testing.T) {
	spec := sandbox.Spec{Tenant: "acme", Workspace: "demo"}
	for ref, want := range map[workspace.PoolRef]int{
		{Tenant: "acme", Workspace: "demo", Name: "x"}:    0,
		{Tenant: "acme", Workspace: "-", Name: "x"}:       1,
		{Tenant: "system", Workspace: "-", Name: "x"}:     2,
		{Tenant: "acme", Workspace: "other", Name: "x"}:   -1,
		{Tenant: "umbrella", Workspace: "demo", Name: ""}: -1,
		{Tenant: "umbrella", Workspace: "-", Name: "x"}:   -1,
	} {
		require.Equal(t, want, rank(ref, spec), "%v", ref)
	}
}

func TestTheNeediestPoolIsFilledFirst(t *testing.T) {
	of := func(name string, want, have int) *pool {
		return &pool{want: workspace.WantedPool{PoolRef: workspace.PoolRef{Name: name}, Min: want, Max: want}, making: have}
	}
	for _, c := range []struct {
		pools []*pool
		want  string
	}{
		{[]*pool{of("a", 4, 2), of("b", 10, 1)}, "b"},
		{[]*pool{of("a", 2, 0), of("b", 10, 1)}, "a"},
		{[]*pool{of("full", 3, 3), of("b", 100, 99)}, "b"},
		{[]*pool{of("a", 2, 1), of("b", 2, 1)}, "a"},
	} {
		require.Equal(t, c.want, neediest(c.pools, noon).want.Name)
	}
	require.Nil(t, neediest([]*pool{of("full", 1, 1)}, noon))
	require.Nil(t, neediest(nil, noon))
}

// A manager that has just started and does not know all pools yet takes none away.
func TestAPoolIsForgottenAfterSomeAnswers(t *testing.T) {
	k := newPoolkeeper(nil)
	ref := workspace.PoolRef{Tenant: "acme", Workspace: "-", Name: "base"}
	wanted := []workspace.WantedPool{{PoolRef: ref, Min: 1, Max: 1}}
	k.want(wanted)
	k.pools[ref].members = []*member{{}}
	for range forgetAfter - 1 {
		k.want(nil)
		require.Len(t, k.pools[ref].members, 1)
	}
	k.want(wanted)
	require.Zero(t, k.pools[ref].absent)
	for range forgetAfter {
		k.want(nil)
	}
	require.Empty(t, k.pools)
	require.Len(t, k.doomed, 1)
}
