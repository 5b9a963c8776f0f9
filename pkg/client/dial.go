package client

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
)

// Daemon is what a running weftd says of itself in weftd.json of its data directory.
type Daemon struct {
	PID     int      `json:"pid"`
	URL     string   `json:"url"`
	HTTP    string   `json:"http"`
	Node    string   `json:"node"`
	Targets []string `json:"targets"`
	Tenant  string   `json:"tenant"`
}

// ReadDaemon reads weftd.json.
func ReadDaemon(dataDir string) (Daemon, error) {
	var d Daemon
	b, err := os.ReadFile(filepath.Join(dataDir, "weftd.json"))
	if err != nil {
		code, hint := fault.Denied, "the data directory %s can't be read; run as the user who started weftd"
		if errors.Is(err, fs.ErrNotExist) {
			code, hint = fault.Unavailable, "no weftd has run on %s; start it with `weft up`"
		}
		return d, fault.Wrap(err, code, hint, dataDir)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return d, fault.Wrap(err, fault.Invalid, "%s/weftd.json can't be read", dataDir)
	}
	return d, nil
}

// Dial connects as the principal of a context.
func Dial(ctx context.Context, c Context) (*Client, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	o := mesh.Options{URL: c.URL, Name: c.Principal, InboxPrefix: c.Inbox}
	switch {
	case c.DataDir != "":
		keys, url, err := openKeys(c)
		if err != nil {
			return nil, err
		}
		o.URL = url
		if _, err := keys.User(c.Tenant, c.Principal, accounts.UserLife); err != nil {
			return nil, err
		}
		o.Credentials = func() (accounts.Credentials, error) { return keys.User(c.Tenant, c.Principal, accounts.UserLife) }
	case c.Creds != "":
		creds, err := readCreds(c.Creds)
		if err != nil {
			return nil, err
		}
		if creds.Name != c.Principal {
			return nil, fault.New(fault.Invalid, "%s is of the principal %q, the context says %q", c.Creds, creds.Name, c.Principal)
		}
		o.Credentials = func() (accounts.Credentials, error) { return readCreds(c.Creds) }
	}
	conn, err := mesh.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return New(conn, c.Tenant, c.Workspace)
}

// openKeys opens the keyring of a data directory, and finds where its mesh listens.
func openKeys(c Context) (*accounts.Keyring, string, error) {
	dir := filepath.Join(c.DataDir, "keys")
	if !accounts.HasKeyring(dir) { // opening it would make a new one
		if _, err := os.Stat(c.DataDir); errors.Is(err, fs.ErrNotExist) {
			return nil, "", fault.New(fault.Unavailable, "there is no mesh in %s; start it with `weft up`", c.DataDir)
		}
		return nil, "", fault.New(fault.Denied, "the keys in %s can't be read; run as the user who started weftd, or use a context with a credentials file", dir)
	}
	keys, err := accounts.OpenKeyring(dir)
	if err != nil {
		return nil, "", fault.Wrap(err, fault.Denied, "the keys in %s can't be read", dir)
	}
	d, err := ReadDaemon(c.DataDir)
	switch {
	case err == nil && d.URL != "":
		return keys, d.URL, nil
	case c.URL != "":
		return keys, c.URL, nil
	case err == nil:
		err = fault.New(fault.Unavailable, "weftd on %s does not say where the mesh listens", c.DataDir)
	}
	return nil, "", err
}

func readCreds(path string) (accounts.Credentials, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return accounts.Credentials{}, fault.Wrap(err, fault.Denied, "the credentials file %s can't be read", path)
	}
	c, err := accounts.ParseFile(b)
	if err != nil {
		return c, fault.Wrap(err, fault.Invalid, "%s is not a NATS credentials file", path)
	}
	return c, nil
}

// DialOperator connects as the operator, which takes the keys of a data directory.
func DialOperator(ctx context.Context, c Context) (*Operator, error) {
	if c.DataDir == "" {
		return nil, fault.New(fault.Denied, "this is for the operator: use a context with a data directory, on the machine that holds the mesh's keys")
	}
	keys, url, err := openKeys(c)
	if err != nil {
		return nil, err
	}
	conn, err := mesh.Connect(ctx, mesh.Options{URL: url, Name: schemas.Operator,
		Credentials: func() (accounts.Credentials, error) { return keys.Service(schemas.Operator) }})
	if err != nil {
		return nil, err
	}
	return &Operator{conn: conn, keys: keys, url: url}, nil
}
