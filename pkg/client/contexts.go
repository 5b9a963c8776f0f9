package client

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// Context says how to reach one mesh, and as whom. Exactly one of DataDir and Creds is set outside of
// sandboxes, neither inside.
type Context struct {
	// URL of the mesh. With DataDir it may be empty: the running weftd says in its data directory where
	// it listens.
	URL string `json:"url,omitempty"`
	// DataDir is the data directory of a weftd on this machine. Its keys are read, and a user of one hour
	// is minted for each connection.
	DataDir string `json:"data_dir,omitempty"`
	// Creds is a NATS credentials file.
	Creds     string `json:"creds,omitempty"`
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace"`
	Principal string `json:"principal"`
	// Inbox is the inbox prefix, if it is not the principal's own. Only sandboxes have one.
	Inbox string `json:"-"`
}

// Check refuses a context that can't be used.
func (c Context) Check() error {
	err := errors.Join(schemas.CheckName("tenant", c.Tenant), schemas.CheckWorkspace(c.Workspace), schemas.CheckName("principal", c.Principal))
	switch {
	case err != nil:
	case c.DataDir != "" && c.Creds != "":
		err = errors.New("a context has a data directory or a credentials file, not both")
	case c.URL == "" && c.DataDir == "":
		err = errors.New("a context needs the mesh's URL or a data directory")
	}
	if err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	return nil
}

// Contexts is the file of contexts.
type Contexts struct {
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`
	path     string
}

// ContextsPath is where the contexts are: $WEFT_CONTEXTS, or weft/contexts.json in $XDG_CONFIG_HOME or
// ~/.config.
func ContextsPath(getenv func(string) string) string {
	if p := getenv("WEFT_CONTEXTS"); p != "" {
		return p
	}
	dir := getenv("XDG_CONFIG_HOME")
	if dir == "" {
		dir = filepath.Join(getenv("HOME"), ".config")
	}
	return filepath.Join(dir, "weft", "contexts.json")
}

// LoadContexts reads the file at path. One that is not there holds no contexts.
func LoadContexts(path string) (*Contexts, error) {
	cs := &Contexts{Contexts: map[string]Context{}, path: path}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cs, nil
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Denied, "%s can't be read", path)
	}
	if err := json.Unmarshal(b, cs); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "%s is not a file of contexts (%v); mend or remove it", path, err)
	}
	if cs.Contexts == nil {
		cs.Contexts = map[string]Context{}
	}
	return cs, nil
}

// Save replaces the file, readable by its owner only.
func (cs *Contexts) Save() error {
	b, err := json.MarshalIndent(cs, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(cs.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Denied, "%s can't be made", dir)
	}
	f, err := os.CreateTemp(dir, ".contexts-*") // CreateTemp makes it 0600
	if err != nil {
		return fault.Wrap(err, fault.Denied, "%s can't be written", dir)
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), cs.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Names lists the contexts, sorted.
func (cs *Contexts) Names() []string {
	out := make([]string, 0, len(cs.Contexts))
	for n := range cs.Contexts {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// Get gives the context called name; the current one if name is empty.
func (cs *Contexts) Get(name string) (Context, error) {
	if name == "" {
		name = cs.Current
	}
	if name == "" {
		return Context{}, fault.New(fault.NotFound, "no context is chosen: `weft up` starts a mesh here and makes one, `weft context add` makes one for a mesh elsewhere, `weft context use` chooses")
	}
	c, ok := cs.Contexts[name]
	if !ok {
		return Context{}, fault.New(fault.NotFound, "there is no context %q; `weft context list` lists them", name)
	}
	return c, nil
}

// SandboxContext gives the context of the sandbox in which this process runs; ok is false outside. The
// node completes the login there, so that no credentials are needed.
func SandboxContext(getenv func(string) string) (c Context, ok bool) {
	c = Context{URL: getenv("NATS_URL"), Inbox: getenv("NATS_INBOX_PREFIX"),
		Tenant: getenv("WEFT_TENANT"), Workspace: getenv("WEFT_WORKSPACE"), Principal: getenv("WEFT_PRINCIPAL")}
	return c, c.URL != "" && c.Inbox != "" && c.Tenant != "" && c.Workspace != "" && c.Principal != ""
}
