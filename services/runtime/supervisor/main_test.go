package supervisor_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// Programs that the tests build once.
var initBinary, payloadBinary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "weft-supervisor")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		initBinary, payloadBinary = filepath.Join(dir, "weft-init"), filepath.Join(dir, "payload")
		for out, pkg := range map[string]string{initBinary: "../../cmd/weft-init", payloadBinary: "./testdata/payload"} {
			c := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
			c.Env = append(os.Environ(), "CGO_ENABLED=0")
			if b, err := c.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, b)
				return 1
			}
		}
		code := m.Run()
		if code == 0 {
			if err := goleak.Find(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return code
	}())
}
