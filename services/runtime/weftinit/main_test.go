package weftinit

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// childEnv makes the test binary be weft-init instead, without what only a static binary can do, so
// that the race detector sees its code too. Its value is the run directory.
const childEnv = "WEFT_TEST_INIT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

func child(dir string) int {
	key, err := readKey(dir + "/" + KeyName)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s := newSupervisor(config{memory: 8 << 20})
	if err := s.listenForwards([]forwardSpec{{"echo", "127.0.0.1:0"}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go s.reaper.run()
	s.serve(ctx, dir+"/"+SocketName, testSandbox, key)
	s.killAll(0)
	return 0
}
