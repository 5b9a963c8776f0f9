package demo

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/fault"
)

// Options say what is shown, and where.
type Options struct {
	Input  string // directory of the code base
	Output string // directory for reports, artifacts and, after a failure, logs; ./weft-demo if empty
	// Daemon is the path of weftd. Empty is the one beside this program.
	Daemon string
	Args   []string // further flags of weftd
	Env    []string // NAME=value; os.Environ() if nil
	Out    io.Writer
	Color  bool
	Width  func() int // columns; nil for 120
	Keep   bool       // leave the mesh running and its data where it is
	// Slow is for how long an analyst of the first pass takes, so that there is a middle in which the
	// daemon can be killed; 4 s if 0.
	Slow time.Duration
}

// plainWidth is how long a line may be where there is no terminal.
const plainWidth = 160

// ForWriter sets Out, and Color and Width as out can show them.
func (o *Options) ForWriter(out io.Writer, env []string) {
	o.Out, o.Width = out, func() int { return plainWidth }
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return
	}
	o.Color = lookup(env, "NO_COLOR") == "" && lookup(env, "TERM") != "dumb"
	o.Width = func() int {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w >= 40 {
			return w
		}
		return 80
	}
}

// complete fills what is left open, and refuses what can't work.
func (o Options) complete() (Options, error) {
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Width == nil {
		o.Width = func() int { return 120 }
	}
	if o.Slow == 0 {
		o.Slow = 4 * time.Second
	}
	if o.Output == "" {
		o.Output = "weft-demo"
	}
	var err error
	if o.Input, err = filepath.Abs(o.Input); err != nil {
		return o, err
	}
	if o.Output, err = filepath.Abs(o.Output); err != nil {
		return o, err
	}
	if st, err := os.Stat(o.Input); err != nil || !st.IsDir() {
		return o, fault.New(fault.NotFound, "the input %s is not a directory; name one with --input", o.Input)
	}
	if o.Daemon == "" {
		o.Daemon = lookup(o.Env, "WEFT_WEFTD_BIN")
	}
	if o.Daemon == "" {
		self, err := os.Executable()
		if err != nil {
			return o, err
		}
		o.Daemon = filepath.Join(filepath.Dir(self), "weftd")
	}
	return o, o.present()
}

// present refuses to begin where something is missing that only a person can get.
func (o *Options) present() error {
	if st, err := os.Stat(o.Daemon); err != nil || !st.Mode().IsRegular() {
		return fault.New(fault.NotFound, "there is no weftd at %s; `make build` builds it beside weft", o.Daemon)
	}
	if os.Geteuid() != 0 {
		return fault.New(fault.Denied, "the demo starts containers, which takes root; run it with sudo")
	}
	for _, p := range []string{"containerd", "containerd-shim-runc-v2", "runc", "bao"} {
		if _, err := toolchain.Find(p); err != nil {
			return fault.Wrap(err, fault.NotFound, "`make demo` gets what is missing")
		}
	}
	if _, err := toolchain.Image("python"); err != nil {
		return fault.Wrap(err, fault.NotFound, "`make demo` gets what is missing")
	}
	return nil
}

// daemonEnv is the environment of weftd: without settings of another mesh or Vault, so that the show
// runs on the embedded defaults. What says where programs are stays.
func daemonEnv(env []string) []string {
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		weft := strings.HasPrefix(name, "WEFT_") && name != "WEFT_CACHE" && !strings.HasSuffix(name, "_BIN")
		if !weft && !strings.HasPrefix(name, "VAULT_") && !strings.HasPrefix(name, "BAO_") {
			out = append(out, e)
		}
	}
	return out
}

func lookup(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(env[i], "="); ok && k == name {
			return v
		}
	}
	return ""
}
