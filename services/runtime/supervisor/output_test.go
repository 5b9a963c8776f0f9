package supervisor_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// checker follows the output of payload pattern and knows what every byte must be.
type checker struct {
	t    testing.TB
	at   uint64
	word [8]byte
}

func (c *checker) take(ev supervisor.Event) {
	require.Zero(c.t, ev.Dropped, "at %d", c.at)
	require.Equal(c.t, c.at, ev.Offset)
	for _, got := range ev.Data {
		if c.at%8 == 0 {
			binary.BigEndian.PutUint64(c.word[:], c.at/8)
		}
		if got != c.word[c.at%8] {
			c.t.Fatalf("byte %d is %#x, not %#x", c.at, got, c.word[c.at%8])
		}
		c.at++
	}
}

// TestNodeRestarts follows 100 MB of output while the node's process goes and comes back: not a byte
// is lost or repeated.
func TestNodeRestarts(t *testing.T) {
	const size = 100_000_000
	for _, mode := range []supervisor.OutputMode{supervisor.OutputLossless, supervisor.OutputAttached} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBox(t)
			ctx := within(t, 120*time.Second)
			spec := command("/payload", "pattern", fmt.Sprint(size))
			spec.Output = mode
			p, err := b.Start(ctx, spec)
			require.NoError(t, err)
			c := &checker{t: t}
			restarts := 0
			for {
				ev, err := p.Next(ctx)
				require.NoError(t, err)
				if ev.Exit != nil {
					require.EqualValues(t, size, ev.Exit.Stdout)
					require.Zero(t, ev.Exit.Code)
					require.Zero(t, ev.Exit.Dropped)
					break
				}
				c.take(ev)
				p.Ack(supervisor.Offsets{Stdout: c.at})
				if c.at > uint64(restarts+1)*size/12 {
					// What the old process had taken and not told is lost with it: the new one asks from there.
					restarts++
					b.restart()
					require.NoError(t, p.Close())
					p, err = b.Attach(ctx, p.ID(), supervisor.Offsets{Stdout: c.at})
					require.NoError(t, err)
				}
			}
			require.EqualValues(t, size, c.at)
			require.Equal(t, 11, restarts)
			require.NoError(t, p.Forget(ctx))
		})
	}
}

// TestConnectionBreaks keeps one Process while the connection breaks again and again below it.
func TestConnectionBreaks(t *testing.T) {
	const size = 50_000_000
	b := newBox(t)
	ctx := within(t, 120*time.Second)
	p, err := b.Start(ctx, command("/payload", "pattern", fmt.Sprint(size)))
	require.NoError(t, err)
	c := &checker{t: t}
	breaks := 0
	for {
		ev, err := p.Next(ctx)
		require.NoError(t, err)
		if ev.Exit != nil {
			break
		}
		c.take(ev)
		if c.at > uint64(breaks+1)*size/20 {
			breaks++
			b.Disconnect()
		}
	}
	require.EqualValues(t, size, c.at)
	require.GreaterOrEqual(t, breaks, 15)

	// The same for input.
	spec := command("/payload", "count")
	spec.Stdin = true
	p, err = b.Start(ctx, spec)
	require.NoError(t, err)
	chunk, n, sum := make([]byte, 100_000), 0, uint64(0)
	for i := range 100 {
		for j := range chunk {
			chunk[j] = byte(i * j)
			sum = sum*31 + uint64(chunk[j])
		}
		n += len(chunk)
		broken := make(chan struct{})
		go func() {
			defer close(broken)
			b.Disconnect()
		}()
		require.NoError(t, p.WriteStdin(ctx, chunk))
		<-broken
	}
	require.NoError(t, p.CloseStdin(ctx))
	ev, err := p.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%d %d\n", n, sum), string(ev.Data))
	require.NoError(t, p.Close())
}

func TestOutputModes(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 60*time.Second)
	written := func(id string) (n, oldest uint64) {
		l, err := b.List(ctx)
		require.NoError(t, err)
		for _, i := range l {
			if i.ID == id {
				return i.End.Stdout, i.Oldest.Stdout
			}
		}
		t.Fatalf("%s is not listed", id)
		return 0, 0
	}
	start := func(mode supervisor.OutputMode, size int) *supervisor.Process {
		spec := command("/payload", "pattern", fmt.Sprint(size))
		spec.Output, spec.Buffer = mode, 256<<10
		p, err := b.Start(ctx, spec)
		require.NoError(t, err)
		return p
	}
	settled := func(id string) uint64 {
		var last uint64
		require.Eventually(t, func() bool {
			n, _ := written(id)
			same := n == last && n > 0
			last = n
			return same
		}, time.Minute, 200*time.Millisecond)
		return last
	}

	t.Run("ring drops the oldest and counts it", func(t *testing.T) {
		p := start(supervisor.OutputRing, 8<<20)
		x, err := p.Wait(ctx) // without any reading
		require.NoError(t, err)
		require.EqualValues(t, 8<<20, x.Stdout)
		require.NoError(t, p.Close())
		p, err = b.Attach(ctx, p.ID(), supervisor.Offsets{Stdout: 100})
		require.NoError(t, err)
		ev, err := p.Next(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 8<<20-256<<10, ev.Offset)
		require.EqualValues(t, ev.Offset-100, ev.Dropped)
		require.NoError(t, p.Forget(ctx))
	})
	t.Run("lossless waits for acknowledgement, also when nobody follows", func(t *testing.T) {
		p := start(supervisor.OutputLossless, 8<<20)
		require.NoError(t, p.Close())
		require.EqualValues(t, 256<<10, settled(p.ID()))
		p, err := b.Attach(ctx, p.ID(), supervisor.Offsets{})
		require.NoError(t, err)
		c := &checker{t: t}
		for c.at < 256<<10 {
			ev, err := p.Next(ctx)
			require.NoError(t, err)
			c.take(ev)
		}
		require.EqualValues(t, 256<<10, settled(p.ID()), "read, but not acknowledged")
		for {
			p.Ack(supervisor.Offsets{Stdout: c.at})
			ev, err := p.Next(ctx)
			require.NoError(t, err)
			if ev.Exit != nil {
				break
			}
			c.take(ev)
		}
		require.EqualValues(t, 8<<20, c.at)
		require.NoError(t, p.Forget(ctx))
	})
	t.Run("attached is held back by its reader, and by nobody else", func(t *testing.T) {
		p := start(supervisor.OutputAttached, 32<<20)
		require.Less(t, settled(p.ID()), uint64(4<<20))
		require.NoError(t, p.Close())
		x, err := p.Wait(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 32<<20, x.Stdout)
		require.Positive(t, x.Dropped)
		_, oldest := written(p.ID())
		require.EqualValues(t, 32<<20-256<<10, oldest)
		require.NoError(t, p.Forget(ctx))
	})
	t.Run("two readers get all of it", func(t *testing.T) {
		p := start(supervisor.OutputAttached, 4<<20)
		q, err := b.Attach(ctx, p.ID(), supervisor.Offsets{})
		require.NoError(t, err)
		follow := func(p *supervisor.Process) error {
			c := &checker{t: t}
			for {
				ev, err := p.Next(ctx)
				if err != nil {
					return err
				}
				if ev.Exit != nil {
					if c.at != 4<<20 {
						return fmt.Errorf("only %d bytes", c.at)
					}
					return nil
				}
				c.take(ev)
			}
		}
		done := make(chan error, 1)
		go func() { done <- follow(q) }()
		require.NoError(t, follow(p))
		require.NoError(t, <-done)
		_, err = p.Next(ctx)
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, q.Close())
		require.NoError(t, p.Forget(ctx))
	})
	t.Run("a read that is given up loses nothing", func(t *testing.T) {
		spec := shell("sleep 0.2; echo late")
		p, err := b.Start(ctx, spec)
		require.NoError(t, err)
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_, err = p.Next(short)
		cancel()
		require.Equal(t, fault.Deadline, fault.CodeOf(err))
		ev, err := p.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, "late\n", string(ev.Data))
		require.NoError(t, p.Close())
	})
	t.Run("an offset beyond the end", func(t *testing.T) {
		p := start(supervisor.OutputRing, 8)
		_, err := p.Wait(ctx)
		require.NoError(t, err)
		_, err = b.Attach(ctx, p.ID(), supervisor.Offsets{Stdout: 9})
		require.Equal(t, fault.Invalid, fault.CodeOf(err))
		require.NoError(t, p.Forget(ctx))
	})
}

func TestManyAtOnce(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 60*time.Second)
	const many = 200
	errs := make(chan error, many)
	t0 := time.Now()
	for i := range many {
		go func() {
			res, err := b.Run(ctx, shell(fmt.Sprintf("sleep 0.5; seq 1 2000; echo %d", i)), nil, 1<<20)
			if err == nil && (res.Exit.Code != 0 || len(res.Stdout) < 8000) {
				err = fmt.Errorf("process %d: %+v", i, res.Exit)
			}
			errs <- err
		}()
	}
	for range many {
		require.NoError(t, <-errs)
	}
	t.Logf("%d at once, half a second each: %v", many, time.Since(t0))
	u, err := b.Usage(ctx)
	require.NoError(t, err)
	t.Logf("weft-init: %d KiB resident", u.InitRSS>>10)
	require.Less(t, u.InitRSS, int64(48<<20))
	b.alone()
}

// TestManyEnded shows that records of ended processes do not pile up, and that tags of trees are used again.
func TestManyEnded(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs 5,000 commands")
	}
	b := newBox(t)
	ctx := within(t, 120*time.Second)
	leftover, err := b.Start(ctx, shell("setsid sleep 600 & exit 0"))
	require.NoError(t, err)
	for range 5000 {
		p, err := b.Start(ctx, command("/bin/true"))
		require.NoError(t, err)
		_, err = p.Wait(ctx)
		require.NoError(t, err)
		require.NoError(t, p.Close())
	}
	l, err := b.List(ctx)
	require.NoError(t, err)
	require.LessOrEqual(t, len(l), 258)
	require.NoError(t, leftover.Close())
	u, err := b.Usage(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, u.PIDs, "the first process's leftover is alive: no later tree was taken for its own")
	require.Less(t, u.InitRSS, int64(32<<20))
}
