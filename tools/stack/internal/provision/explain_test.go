package provision

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExplainSaysWhatIsLostAndWhatToDo(t *testing.T) {
	tests := []struct {
		name, log string
		err       error
		what, do  string
	}{
		{"no network", "go: downloading x\ndial tcp: lookup proxy: no such host", errors.New("go: exit status 1"), "can't be reached", "GOPROXY"},
		{"apt without network", "Err:1 Temporary failure resolving 'mirror'", errors.New("apt-get: exit status 100"), "can't be reached", "proxy settings"},
		{"downloads are off", "main.go:11:2: module lookup disabled by GOPROXY=off", errors.New("go: exit status 1"), "may not download", "GOPROXY"},
		{"disk full", "write /root/x: no space left on device", errors.New("go: exit status 1"), "the disk is full", "free about"},
		{"killed for memory", "compile: signal: killed", errors.New("go: exit status 1"), "out of memory", "4 GB"},
		{"no compiler", `cgo: C compiler "gcc" not found: exec: "gcc": executable file not found in $PATH`, errors.New("go: exit status 1"), "no C compiler", "libseccomp-dev"},
		{"unknown package", "E: Unable to locate package mmdebstrap", errors.New("apt-get: exit status 100"), "don't have it", "main component"},
		{"a sentence of its own", "", &Plain{Why: "installing packages needs root", Do: "run sudo"}, "needs root", "run sudo"},
		{"unwritable cache", "", os.ErrPermission, "permission denied", "WEFT_CACHE"},
		{"anything else", "it broke", errors.New("go: exit status 7"), "exit status 7", "tool.log"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "tool.log")
			require.NoError(t, os.WriteFile(log, []byte(tt.log), 0o644))
			stage := Stage{Name: "tool", What: "The tool", Lost: "nothing works", Remedy: "install it yourself"}
			advice := Explain(Result{Stage: stage, Outcome: Failed, Err: tt.err, Log: log}, "`make setup`")
			require.Contains(t, advice.What, tt.what)
			require.Contains(t, advice.What, "The tool can't be had")
			require.Contains(t, advice.What, "Without it nothing works.")
			require.Contains(t, advice.Do, tt.do)
			require.Contains(t, advice.Do, "then run `make setup` again; or install it yourself.")
		})
	}
}

func TestExplainSkipped(t *testing.T) {
	advice := Explain(Result{Stage: Stage{What: "runc"}, Outcome: Skipped, Err: errors.New("it needs packages")}, "make")
	require.Equal(t, "runc was not tried, because it needs packages.", advice.What)
}
