package weftd

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/app/config"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// The parts that -target can name. "all" is every one of them.
const (
	partBus = "bus"
)

// parts in the order in which they start.
var parts = []string{partBus, schemas.WorkspaceManager, schemas.Filesystem, schemas.Secrets, schemas.Memory, schemas.Runtime}

// Config is what one process needs to know.
type Config struct {
	Targets    []string
	DataDir    string
	Listen     string // of the embedded bus
	NATSURL    string // of a bus elsewhere
	CredsDir   string // <service>.creds, where the keys are elsewhere
	HTTP       string
	Node       string
	Pool       string
	Slots      int
	Memory     string // sqlite, or mongodb://…
	VaultAddr  string
	Init, CLI  string
	Registries []string
	Tenant     string
	LogLevel   string
	LogFormat  string
	Lease      time.Duration
	Watermark  int64
	mint       string
	purge      bool
}

func (c *Config) has(part string) bool { return slices.Contains(c.Targets, part) }

// embedded reports whether this process runs the bus and so holds the keys.
func (c *Config) embedded() bool { return c.has(partBus) }

func (c *Config) dir(part string) string { return filepath.Join(c.DataDir, part) }

// parse reads args and env. help goes to out.
func parse(args, env []string, out io.Writer) (*Config, error) {
	c := &Config{}
	f := flag.NewFlagSet("weftd", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.String(config.FileFlag, "", "configuration `file` (YAML, one setting a line, named like these flags)")
	target := f.String("target", "all", "parts to run: all, or a comma-separated `list` of "+strings.Join(parts, ", "))
	f.StringVar(&c.DataDir, "data-dir", "/var/lib/weft", "`directory` of all state")
	f.StringVar(&c.Listen, "listen", "127.0.0.1:4222", "`address` of the embedded NATS server; port 0 picks a free one")
	f.StringVar(&c.NATSURL, "nats-url", "", "`URL` of the NATS server, where bus is not among the targets")
	f.StringVar(&c.CredsDir, "creds", "", "`directory` with <service>.creds, where the keys are on another machine")
	f.StringVar(&c.HTTP, "http", "127.0.0.1:4280", "`address` for /healthz, /readyz and /metrics; port 0 picks a free one")
	f.StringVar(&c.Node, "node", hostname(), "`name` of this node")
	f.StringVar(&c.Pool, "pool", "default", "`pool` that this node pulls from")
	f.IntVar(&c.Slots, "slots", max(4, 2*runtime.NumCPU()), "how many sandboxes this node holds at once")
	f.StringVar(&c.Memory, "memory", "sqlite", "store of the memory service: sqlite, or a mongodb:// `URL`")
	f.StringVar(&c.VaultAddr, "vault-addr", "", "`address` of a Vault or OpenBao to use (token from VAULT_TOKEN); default: one of our own")
	f.StringVar(&c.Init, "init", beside("weft-init"), "`path` of weft-init")
	f.StringVar(&c.CLI, "cli", beside("weft"), "`path` of the weft CLI that sandboxes get")
	registries := f.String("registries", "", "comma-separated `list` of registries, or parts of them, as example.com:5000/team, from which this node pulls the images of templates; empty: none, only archives in its image directory are used")
	f.StringVar(&c.Tenant, "tenant", "default", "`tenant` that a new mesh begins with; empty for none")
	f.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&c.LogFormat, "log-format", "text", "text or json")
	f.DurationVar(&c.Lease, "claim-lease", 10*time.Second, "how long a node holds an attempt without renewing it")
	f.Int64Var(&c.Watermark, "disk-watermark", 1<<30, "free `bytes` under which a node gets no new work")
	f.StringVar(&c.mint, "mint-creds", "", "write <service>.creds for every service and -node into `directory`, and stop")
	f.BoolVar(&c.purge, "purge", false, "end the sandboxes, containerd and OpenBao that run on the data directory without a weftd, and stop; the data stays")
	err := config.Parse(f, args, env)
	if err == flag.ErrHelp {
		fmt.Fprint(out, "weftd runs the services of a Weft mesh.\n\nEvery flag can also stand in the environment (-data-dir as WEFT_DATA_DIR) or in the file of -config.\n\n")
		f.SetOutput(out)
		f.PrintDefaults()
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	if *registries != "" {
		c.Registries = strings.Split(*registries, ",")
	}
	return c, c.check(*target)
}

func (c *Config) check(target string) error {
	if target == "all" {
		c.Targets = parts
	} else {
		c.Targets = strings.Split(target, ",")
	}
	for _, t := range c.Targets {
		if !slices.Contains(parts, t) {
			return fault.New(fault.Invalid, "there is no target %q; choose from all, %s", t, strings.Join(parts, ", "))
		}
	}
	if !c.embedded() && c.NATSURL == "" {
		return fault.New(fault.Invalid, "without the target %s, -nats-url must say where the mesh is", partBus)
	}
	if err := schemas.CheckName("node", c.Node); err != nil {
		return fault.New(fault.Invalid, "%v; name it with -node", err)
	}
	if schemas.Reserved(c.Node) {
		return fault.New(fault.Invalid, "node %q: the name is reserved; choose another with -node", c.Node)
	}
	if c.Lease < minLease {
		return fault.New(fault.Invalid, "-claim-lease %s must be %s or more: nodes renew every 2 s, and freeze what they hold 3 s before its end", c.Lease, minLease)
	}
	if c.Slots < 1 {
		return fault.New(fault.Invalid, "-slots %d must be 1 or more", c.Slots)
	}
	if c.Memory != "sqlite" && !strings.HasPrefix(c.Memory, "mongodb://") && !strings.HasPrefix(c.Memory, "mongodb+srv://") {
		return fault.New(fault.Invalid, "-memory %q must be sqlite or a mongodb:// URL", c.Memory)
	}
	var err error
	c.DataDir, err = filepath.Abs(c.DataDir)
	return err
}

// minLease leaves a node one renewal before it freezes.
const minLease = 6 * time.Second

var notLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// hostname makes the machine's name a DNS label.
func hostname() string {
	h, _ := os.Hostname()
	h, _, _ = strings.Cut(strings.ToLower(h), ".")
	h = strings.Trim(notLabel.ReplaceAllString(h, "-"), "-")
	if len(h) > 63 {
		h = strings.Trim(h[:63], "-")
	}
	if h == "" || schemas.Reserved(h) {
		return "node-1"
	}
	return h
}

// beside is the path of a program in the folder of this one.
func beside(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}
