package mongo_test

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/needs"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/memory/internal/mongo"
	"github.com/weftmesh/weft/services/memory/internal/store"
	"github.com/weftmesh/weft/services/memory/storetest"
)

// serverEnv names a MongoDB to test against in place of FerretDB. The tests make databases of their own in it.
const serverEnv = "WEFT_TEST_MONGODB_URL"

func TestMain(m *testing.M) {
	if crashChild() {
		return
	}
	os.Exit(func() int {
		defer server.stop()
		code := m.Run()
		if code == 0 {
			if err := goleak.Find(goleak.IgnoreTopFunction("os/exec.(*Cmd).watchCtx")); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return code
	}())
}

// server is the FerretDB that all tests share; each has a database of its own in it.
var server ferret

type ferret struct {
	once sync.Once
	url  string
	err  error
	cmd  *exec.Cmd
	dir  string
}

// start gives the server's URL.
func (f *ferret) start(t testing.TB) string {
	t.Helper()
	if u := os.Getenv(serverEnv); u != "" {
		return u
	}
	path, err := toolchain.Find("ferretdb")
	if err != nil {
		needs.All(t, fmt.Errorf("no server of the MongoDB protocol: %w (or set %s)", err, serverEnv))
	}
	f.once.Do(func() { f.err = f.run(path) })
	require.NoError(t, f.err)
	return f.url
}

func (f *ferret) run(path string) error {
	var err error
	if f.dir, err = os.MkdirTemp("", "weft-ferretdb-"); err != nil {
		return err
	}
	f.cmd = exec.Command(path, "-listen-addr", "127.0.0.1:0", "-sqlite-url", "file:"+f.dir+"/", "-log-level", "error")
	f.cmd.Stderr = os.Stderr
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := f.cmd.Start(); err != nil {
		return err
	}
	timer := time.AfterFunc(30*time.Second, func() { _ = f.cmd.Process.Kill() })
	defer timer.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	f.url = strings.TrimSpace(line)
	return err
}

func (f *ferret) stop() {
	if f.cmd != nil && f.cmd.Process != nil {
		_ = f.cmd.Process.Kill()
		_ = f.cmd.Wait()
	}
	if f.dir != "" {
		_ = os.RemoveAll(f.dir)
	}
}

// fresh is the URL of a database that nobody used before.
func fresh(t testing.TB) string {
	u, err := url.Parse(server.start(t))
	require.NoError(t, err)
	u.Path = "/t" + schemas.NewID()
	return u.String()
}

func connect(t testing.TB, url string) *mongo.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := mongo.Open(ctx, url)
	require.NoError(t, err)
	return s
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return connect(t, fresh(t)) }, storetest.Gaps{ApproximateQuota: true})
}
