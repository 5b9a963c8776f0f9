package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFailures(t *testing.T) {
	out := "ok  \texample.com/a\t0.1s\n--- FAIL: TestOne (0.00s)\n    --- FAIL: TestOne/sub (0.00s)\n--- FAIL: TestTwo (0.00s)\nFAIL\nFAIL\texample.com/b\t0.2s\n" +
		"--- FAIL: TestThree (0.00s)\npanic: test timed out\nFAIL\texample.com/c\t0.2s\nFAIL\texample.com/d [build failed]\n?   \texample.com/e\t[no test files]\nFAIL\n"
	all, err := failures(strings.NewReader(out))
	require.NoError(t, err)
	require.Equal(t, []failure{{"example.com/b", []string{"TestOne", "TestTwo"}}, {"example.com/c", nil}, {"example.com/d", nil}}, all)
	require.Equal(t, []string{"-run", "^(TestOne|TestTwo)$", "example.com/b"}, all[0].arguments())
}

func TestSplit(t *testing.T) {
	options, packages := split([]string{"-race", "-p", "2", "-timeout=40m", "a", "b"})
	require.Equal(t, []string{"-race", "-p", "2", "-timeout=40m"}, options)
	require.Equal(t, []string{"a", "b"}, packages)
}

// TestRun runs tests that always pass, pass the second time, and never pass.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("TESTRUN_MARK", filepath.Join(dir, "mark"))
	t.Chdir(dir)
	write := func(name, body string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600))
	}
	write("go.mod", "module example.com/m\n\ngo 1.25\n")
	test := func(body string) {
		write("m_test.go", "package m\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestFirst(t *testing.T) {\n\t_, err := os.Stat(os.Getenv(\"TESTRUN_MARK\"))\n\t"+body+"\n}\n\nfunc TestFine(*testing.T) {}\n")
	}
	for _, c := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"passes", "_ = err", 0, ""},
		{"passes the second time", `if err != nil { _ = os.WriteFile(os.Getenv("TESTRUN_MARK"), nil, 0o600); t.Fatal("once") }`, 0, "UNSTEADY, failed once and then passed: example.com/m TestFirst"},
		{"never passes", `_ = err; t.Fatal("always")`, 1, "once more, alone: example.com/m TestFirst"},
		{"does not build", `undefined()`, 1, "once more, alone: example.com/m"},
	} {
		test(c.body)
		var out, said bytes.Buffer
		require.Equal(t, c.status, run([]string{"--", "-p", "1", "./..."}, &out, &said), "%s: %s%s", c.name, &out, &said)
		require.Contains(t, said.String(), c.says, c.name)
		if c.says == "" {
			require.Empty(t, said.String(), c.name)
		}
	}
}
