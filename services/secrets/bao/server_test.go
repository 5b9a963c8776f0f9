package bao_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/secrets/bao"
	"github.com/weftmesh/weft/services/secrets/internal/baotest"
	"github.com/weftmesh/weft/services/secrets/internal/name"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// daemonEnv makes the test binary a daemon that opens a server in this directory and then is killed.
const daemonEnv = "WEFT_BAO_TEST_DAEMON"

func TestMain(m *testing.M) {
	if dir := os.Getenv(daemonEnv); dir != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if _, err := bao.Open(ctx, bao.Config{Bin: os.Getenv("BIN"), Dir: dir}); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	baotest.Main(m)
}

var secret = name.Secret{Tenant: "acme", Workspace: "demo", Name: "db"}

// login gives an API client with the service's token.
func login(t *testing.T, s *bao.Server) *api.Client {
	t.Helper()
	token, err := s.Login(baotest.Context(t), nil)
	require.NoError(t, err)
	v, err := vault.Dial(s.Address(), "")
	require.NoError(t, err)
	t.Cleanup(func() { vault.Hang(v) })
	return vault.As(v, token)
}

func TestFoundAgainByTheNextDaemon(t *testing.T) {
	dir := baotest.Dir(t)
	start := time.Now()
	s := baotest.Open(t, dir)
	t.Logf("first start %s", time.Since(start))
	c := baotest.Client(t, s)
	_, err := c.PutKV(baotest.Context(t), secret, value.Of("hunter2"))
	require.NoError(t, err)
	pid := s.Pid()
	token, err := s.Login(baotest.Context(t), nil)
	require.NoError(t, err)
	s.Close()

	start = time.Now()
	again := baotest.Open(t, dir)
	t.Logf("found again in %s", time.Since(start))
	require.Equal(t, pid, again.Pid())
	same, err := again.Login(baotest.Context(t), nil)
	require.NoError(t, err)
	require.Equal(t, token.Reveal(), same.Reveal())
	_, err = baotest.Client(t, again).Describe(baotest.Context(t), secret)
	require.NoError(t, err)
}

func TestSurvivesAKilledDaemon(t *testing.T) {
	dir := baotest.Dir(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), daemonEnv+"="+dir, "BIN="+baotest.Bin(t))
	out, err := cmd.CombinedOutput()
	require.ErrorContains(t, err, "killed", string(out))

	var id struct{ Pid int }
	b, err := os.ReadFile(filepath.Join(dir, "process.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &id))
	s := baotest.Open(t, dir)
	require.Equal(t, id.Pid, s.Pid())
	require.NoError(t, s.Ready(baotest.Context(t)))
	sid, err := getsid(id.Pid)
	require.NoError(t, err)
	require.Equal(t, id.Pid, sid, "it leads a session of its own")
}

func getsid(pid int) (int, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	return strconv.Atoi(f[3])
}

func TestStartedAgainWhenKilled(t *testing.T) {
	s := baotest.Start(t)
	c := baotest.Client(t, s)
	ctx := baotest.Context(t)
	_, err := c.PutKV(ctx, secret, value.Of("hunter2"))
	require.NoError(t, err)
	for range 3 {
		pid := s.Pid()
		start := time.Now()
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		require.Eventually(t, func() bool { return s.Pid() != pid && s.Ready(ctx) == nil }, 20*time.Second, 5*time.Millisecond)
		t.Logf("back after %s", time.Since(start))
		_, err = c.Describe(ctx, secret)
		require.NoError(t, err)
	}
}

func TestUnsealedAgainWhenSealed(t *testing.T) {
	s := baotest.Start(t)
	ctx := baotest.Context(t)
	// Only an administrator can seal; make one as one would by hand.
	root := baotest.Root(t, s)
	require.NoError(t, root.Sys().SealWithContext(ctx))
	require.True(t, fault.Is(s.Ready(ctx), fault.Unavailable))
	require.Eventually(t, func() bool { return s.Ready(ctx) == nil }, 20*time.Second, 20*time.Millisecond)
}

func TestASecondDaemonIsRefused(t *testing.T) {
	dir := baotest.Seeded(t)
	s := baotest.Open(t, dir)
	_, err := bao.Open(baotest.Context(t), bao.Config{Bin: baotest.Bin(t), Dir: dir})
	require.True(t, fault.Is(err, fault.Conflict), err)
	require.ErrorContains(t, err, "another weftd")
	require.True(t, fault.Is(bao.StopIn(baotest.Context(t), dir), fault.Conflict))
	require.NoError(t, s.Ready(baotest.Context(t)))
}

func TestARecycledPidIsNotBelieved(t *testing.T) {
	dir := baotest.Seeded(t)
	s := baotest.Open(t, dir)
	pid := s.Pid()
	record := filepath.Join(dir, "process.json")

	other := exec.Command("sleep", "60")
	require.NoError(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	var id map[string]any
	b, err := os.ReadFile(record)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &id))
	id["pid"] = other.Process.Pid
	lie, err := json.Marshal(id)
	require.NoError(t, err)

	for what, content := range map[string][]byte{"another process": lie, "no process": []byte(`{"pid":999999,"start":1,"boot":"x"}`), "garbage": []byte("{"), "nothing": nil} {
		s.Close()
		if content == nil {
			require.NoError(t, os.Remove(record))
		} else {
			require.NoError(t, os.WriteFile(record, content, 0o600))
		}
		s = baotest.Open(t, dir)
		require.Equal(t, pid, s.Pid(), what)
	}
	require.NoError(t, s.Stop(baotest.Context(t)))

	require.NoError(t, os.WriteFile(record, lie, 0o600))
	s = baotest.Open(t, dir)
	require.NotEqual(t, other.Process.Pid, s.Pid())
	require.NoError(t, s.Stop(baotest.Context(t)))
	require.NoError(t, other.Process.Signal(syscall.Signal(0)), "the other process was left alone")
}

func TestAFirstStartThatWasCutOffBeginsAnew(t *testing.T) {
	for _, running := range []bool{true, false} {
		dir := baotest.Seeded(t)
		s := baotest.Open(t, dir)
		pid := s.Pid()
		if running {
			s.Close()
		} else {
			require.NoError(t, s.Stop(baotest.Context(t)))
		}
		// What is on disk when the daemon dies between the answer with the key and its writing.
		require.NoError(t, os.Remove(filepath.Join(dir, "keys.json")))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "initialising"), nil, 0o600))
		s = baotest.Open(t, dir)
		require.NotEqual(t, pid, s.Pid())
		baotest.Client(t, s)
		require.NoFileExists(t, filepath.Join(dir, "initialising"))
	}
}

func TestABootstrapThatWasCutOffIsFinished(t *testing.T) {
	dir := baotest.Seeded(t)
	s := baotest.Open(t, dir)
	keys := filepath.Join(dir, "keys.json")
	b, err := os.ReadFile(keys)
	require.NoError(t, err)
	var k map[string]string
	require.NoError(t, json.Unmarshal(b, &k))
	require.NotContains(t, k, "root_token")
	// Died after the root token was revoked and before that was written; and before there was a token.
	for _, rest := range []map[string]string{
		{"unseal_key": k["unseal_key"], "root_token": "s.gone", "service_token": k["service_token"]},
		{"unseal_key": k["unseal_key"]},
		// An older version of Weft set it up.
		{"unseal_key": k["unseal_key"], "service_token": k["service_token"], "provisioned": "older"},
	} {
		s.Close()
		b, err = json.Marshal(rest)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(keys, b, 0o600))
		s = baotest.Open(t, dir)
		baotest.Client(t, s)
		b, err = os.ReadFile(keys)
		require.NoError(t, err)
		require.NotContains(t, string(b), "root_token")
		require.Contains(t, string(b), vault.Fingerprint())
	}
}

func TestALostKeyIsTold(t *testing.T) {
	dir := baotest.Seeded(t)
	s := baotest.Open(t, dir)
	require.NoError(t, s.Stop(baotest.Context(t)))
	require.NoError(t, os.Rename(filepath.Join(dir, "keys.json"), filepath.Join(dir, "kept")))
	_, err := bao.Open(baotest.Context(t), bao.Config{Bin: baotest.Bin(t), Dir: dir})
	require.True(t, fault.Is(err, fault.Unavailable), err)
	require.ErrorContains(t, err, "put that file back")
	require.NoError(t, os.Rename(filepath.Join(dir, "kept"), filepath.Join(dir, "keys.json")))
	baotest.Open(t, dir)
}

func TestTheServicesTokenIsRemade(t *testing.T) {
	s := baotest.Open(t, baotest.Seeded(t))
	c := baotest.Client(t, s)
	require.NoError(t, login(t, s).Auth().Token().RevokeSelf(""))
	require.NoError(t, c.Ready(baotest.Context(t)), "the adapter logs in again")
	require.NoError(t, login(t, s).Auth().Token().RevokeSelf(""))
	_, err := c.PutKV(baotest.Context(t), secret, value.Of("x"))
	require.NoError(t, err)
}

func TestNobodyElseReachesIt(t *testing.T) {
	dir := baotest.Dir(t)
	s := baotest.Open(t, dir)
	pid := strconv.Itoa(s.Pid())
	ours, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	its, err := os.Readlink("/proc/" + pid + "/ns/net")
	require.NoError(t, err)
	require.NotEqual(t, ours, its)
	routes, err := os.ReadFile("/proc/" + pid + "/net/route")
	require.NoError(t, err)
	require.Len(t, strings.Split(strings.TrimSpace(string(routes)), "\n"), 1, "no route leads out")
	for _, file := range []string{"/proc/" + pid + "/net/tcp", "/proc/" + pid + "/net/tcp6"} {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
			require.Contains(t, line, " 0100007F:", "only loopback")
		}
	}

	for file, mode := range map[string]os.FileMode{"": 0o700 | os.ModeDir, "bao.sock": 0o600 | os.ModeSocket, "keys.json": 0o600, "audit.log": 0o600, "server.log": 0o600, "server.hcl": 0o600, "process.json": 0o600} {
		st, err := os.Stat(filepath.Join(dir, file))
		require.NoError(t, err)
		require.Equal(t, mode, st.Mode(), file)
	}
	env, err := os.ReadFile("/proc/" + pid + "/environ")
	require.NoError(t, err)
	require.NotContains(t, string(env), "VAULT_")
}

func TestRootIsGoneAndValuesAreNotInTheAuditLog(t *testing.T) {
	dir := baotest.Seeded(t)
	s := baotest.Open(t, dir)
	c := baotest.Client(t, s)
	ctx := baotest.Context(t)
	const plain = "correct-horse-battery"
	_, err := c.PutKV(ctx, secret, value.Of(plain))
	require.NoError(t, err)
	v := login(t, s)
	accessors, err := c.Accessors(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, accessors)
	for _, a := range accessors {
		tok, err := v.Auth().Token().LookupAccessor(a)
		require.NoError(t, err)
		require.NotContains(t, tok.Data["policies"], "root")
	}
	for _, denied := range []string{"sys/raw/core", "sys/storage/raft/snapshot", name.KVMount + "/data/acme/demo/db", name.TransitMount + "/export/signing-key/x"} {
		_, err := v.Logical().ReadWithContext(ctx, denied)
		require.ErrorContains(t, err, "permission denied", denied)
	}
	audit, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	require.NoError(t, err)
	require.Contains(t, string(audit), "weft-kv/data/acme/demo/db")
	require.NotContains(t, string(audit), plain)
}

func TestStop(t *testing.T) {
	dir := baotest.Seeded(t)
	s := baotest.Open(t, dir)
	pid := s.Pid()
	s.Close()
	require.NoError(t, syscall.Kill(pid, 0), "Close leaves it running")
	require.NoError(t, bao.StopIn(baotest.Context(t), dir))
	require.NoFileExists(t, filepath.Join(dir, "process.json"))
	require.NoError(t, bao.StopIn(baotest.Context(t), dir), "stopping twice")
	require.NoError(t, bao.StopIn(baotest.Context(t), dir+"/never"))
}

func TestBadConfiguration(t *testing.T) {
	_, err := bao.Open(baotest.Context(t), bao.Config{Bin: "bao", Dir: "/tmp/" + strings.Repeat("x", 120)})
	require.True(t, fault.Is(err, fault.Invalid), err)
	_, err = bao.Open(baotest.Context(t), bao.Config{Bin: "/nonexistent/bao", Dir: baotest.Dir(t)})
	require.True(t, fault.Is(err, fault.Unavailable), err)
	require.ErrorContains(t, err, "make setup")
	_, err = bao.Open(baotest.Context(t), bao.Config{Bin: "/bin/true", Dir: baotest.Dir(t)})
	require.True(t, fault.Is(err, fault.Unavailable), err)
}
