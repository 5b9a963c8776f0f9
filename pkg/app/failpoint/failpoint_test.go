package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFromEnv(t *testing.T) {
	require.Nil(t, fromEnv(""))
	require.Nil(t, fromEnv("a:0"))
	require.Nil(t, fromEnv("a:x"))
	p := fromEnv("a.b")
	require.Equal(t, "a.b", p.name)
	require.Equal(t, 1, p.left)
	p = fromEnv("a.b:3")
	require.Equal(t, 3, p.left)
}

func TestNamesAreSortedAndOnce(t *testing.T) {
	require.Equal(t, "test.b", Register("test.b"))
	Register("test.a")
	Register("test.b")
	require.Equal(t, []string{"test.a", "test.b"}, Names())
}

func TestDiesAtItsTurn(t *testing.T) {
	if os.Getenv("WEFT_FAILPOINT_CHILD") != "" {
		Hit("other")
		Hit("here")
		_, _ = os.Stdout.WriteString("once\n")
		Hit("here")
		_, _ = os.Stdout.WriteString("never\n")
		os.Exit(0)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestDiesAtItsTurn$")
	cmd.Env = append(os.Environ(), "WEFT_FAILPOINT_CHILD=1", Env+"=here:2")
	out, err := cmd.Output()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "the child must not exit by itself")
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
	require.Equal(t, "once\n", string(out))
}

func BenchmarkHitNotArmed(b *testing.B) {
	for b.Loop() {
		Hit("nothing")
	}
}
