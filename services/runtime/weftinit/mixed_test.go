package weftinit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/needs"
	nodeside "github.com/weftmesh/weft/services/runtime/supervisor"
)

const testSandbox = "0123456789abcdefghij"

// TestEverythingAtOnce does all kinds of things to one weft-init at the same time, while its connection
// breaks again and again. Run it with -race: the child is this test binary.
func TestEverythingAtOnce(t *testing.T) {
	needs.Root(t)
	dir := t.TempDir()
	server, err := nodeside.NewServer(dir, nodeside.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer server.Close()
	box, err := server.Add(testSandbox, nodeside.Owner{})
	require.NoError(t, err)
	var stderr bytes.Buffer
	init := exec.Command("/proc/self/exe")
	init.Env = append(os.Environ(), childEnv+"="+filepath.Join(dir, testSandbox, "run"))
	init.Stderr = &stderr
	require.NoError(t, init.Start())
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	require.NoError(t, box.WaitConnected(ctx))

	work := map[string]func(i int) error{
		"run": func(i int) error {
			res, err := box.Run(ctx, shell(fmt.Sprintf("cat; echo %d; exit 3", i)), []byte("in "), 1<<20)
			if err == nil && (res.Exit.Code != 3 || string(res.Stdout) != fmt.Sprintf("in %d\n", i)) {
				err = fmt.Errorf("%+v %q", res.Exit, res.Stdout)
			}
			return lostIsFine(err)
		},
		"limited": func(int) error {
			spec := shell("ulimit -n")
			spec.Rlimits = []nodeside.Rlimit{{Name: "nofile", Soft: 50, Hard: 50}}
			res, err := box.Run(ctx, spec, nil, 100)
			if err == nil && string(res.Stdout) != "50\n" {
				err = fmt.Errorf("%+v %q", res.Exit, res.Stdout)
			}
			return lostIsFine(err)
		},
		"terminal": func(int) error {
			spec := shell("echo on a terminal")
			spec.PTY = &nodeside.Size{Rows: 1, Cols: 1}
			_, err := box.Run(ctx, spec, nil, 100)
			return lostIsFine(err)
		},
		"stop": func(int) error {
			p, err := box.Start(ctx, shell("sleep 60 & sleep 60"))
			if err != nil {
				return lostIsFine(err)
			}
			_ = p.Signal(ctx, syscall.SIGCONT, nodeside.TargetTree)
			if err := p.Stop(ctx, 10*time.Millisecond); err != nil {
				return err
			}
			_, err = p.Wait(ctx)
			_ = p.Forget(ctx)
			return err
		},
		"timeout": func(int) error {
			spec := shell("yes")
			spec.Output, spec.Timeout, spec.Grace = nodeside.OutputRing, 20*time.Millisecond, time.Millisecond
			p, err := box.Start(ctx, spec)
			if err != nil {
				return lostIsFine(err)
			}
			x, err := p.Wait(ctx)
			if err == nil && x.Reason != nodeside.ReasonTimeout {
				err = fmt.Errorf("%+v", x)
			}
			_ = p.Forget(ctx)
			return err
		},
		"files": func(i int) error {
			f := box.Files(nodeside.Identity{UID: 1000, GID: 1000})
			path := fmt.Sprintf("/tmp/weft-test-%d-%d", os.Getpid(), i)
			if _, err := f.Write(ctx, path, 0o600, strings.NewReader("x")); err != nil {
				return lostIsFine(err)
			}
			_, _, err := f.Entries(ctx, "/tmp", nodeside.FileQuery{Depth: 1})
			_ = f.Remove(ctx, path, false)
			_ = os.Remove(path)
			return lostIsFine(err)
		},
		"look": func(int) error {
			_, err := box.List(ctx)
			if err == nil {
				_, err = box.Usage(ctx)
			}
			return lostIsFine(err)
		},
	}
	var wg sync.WaitGroup
	for name, f := range work {
		for worker := range 3 {
			wg.Go(func() {
				for i := range 15 {
					if err := f(worker*1000 + i); err != nil {
						t.Errorf("%s %d: %v", name, i, err)
						return
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	left := 60 // on a machine that has much else to do, nothing would come to its end between two
	for tick := time.NewTicker(150 * time.Millisecond); ; {
		select {
		case <-tick.C:
			if left--; left > 0 {
				box.Disconnect()
			}
			continue
		case <-done:
			tick.Stop()
		}
		break
	}
	require.NoError(t, init.Process.Signal(syscall.SIGTERM))
	require.NoError(t, init.Wait(), stderr.String())
	require.NotContains(t, stderr.String(), "DATA RACE")
}

func shell(script string) nodeside.ProcessSpec {
	return nodeside.ProcessSpec{
		Argv: nodeside.Texts("sh", "-c", script), Env: nodeside.Texts("PATH=/usr/bin:/bin"),
		Identity: nodeside.Identity{UID: 1000, GID: 1000},
	}
}

// lostIsFine lets operations fail whose connection broke: they are not repeated by themselves.
func lostIsFine(err error) error {
	if err != nil && strings.Contains(err.Error(), "the connection to the sandbox broke") {
		return nil
	}
	return err
}
