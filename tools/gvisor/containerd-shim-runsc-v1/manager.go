package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
)

// manager is gVisor's, with a start of its own. Theirs gives the shim an oom_score_adj of -999, and
// fails where the machine does not let it: a container without CAP_SYS_RESOURCE. Ours takes what it gets.
type manager struct{ shim.Manager }

// groupAnnotation puts containers with the same value under one shim, as runc's shim does.
const groupAnnotation = "io.containerd.runc.v2.group"

// Start runs the shim that will serve container id and gives its address, or that of one which
// serves the container's group already. containerd calls it in the container's bundle.
func (m manager) Start(ctx context.Context, id string, opts shim.StartOpts) (shim.BootstrapParams, error) {
	params := shim.BootstrapParams{Version: 2, Protocol: "ttrpc"}
	group, err := groupOf("config.json", id)
	if err != nil {
		return params, err
	}
	if params.Address, err = address(ctx, group, opts); err != nil {
		return params, err
	}
	listener, err := shim.NewSocket(params.Address)
	if shim.SocketEaddrinuse(err) {
		if shim.CanConnect(params.Address) {
			return params, remember(params.Address)
		}
		// Somebody's who has died.
		if err = shim.RemoveSocket(params.Address); err == nil {
			listener, err = shim.NewSocket(params.Address)
		}
	}
	if err != nil {
		return params, fmt.Errorf("listen for containerd: %w", err)
	}
	listener.SetUnlinkOnClose(false) // the shim listens on
	defer listener.Close()
	err = remember(params.Address)
	if err == nil {
		var socket *os.File
		if socket, err = listener.File(); err == nil {
			defer socket.Close()
			err = launch(ctx, id, opts, socket)
		}
	}
	if err != nil {
		_ = shim.RemoveSocket(params.Address)
	}
	return params, err
}

// launch starts this program as the shim that serves socket, its file descriptor 3.
func launch(ctx context.Context, id string, opts shim.StartOpts, socket *os.File) error {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"-namespace", namespace, "-address", opts.Address, "-id", id}
	if opts.Debug {
		args = append(args, "-debug")
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	cmd.ExtraFiles = []*os.File{socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := shim.WritePidFile("shim.pid", cmd.Process.Pid); err != nil {
		return fmt.Errorf("%w; %w", err, cmd.Process.Kill())
	}
	// The kernel lets everybody raise it. Where even that fails, the shim goes like any other process.
	_ = shim.AdjustOOMScore(cmd.Process.Pid)
	return nil
}

// address at which the shim of a group listens: beside the socket of a containerd that keeps its shims'
// sockets there, as Weft's private one does, else where all shims of the machine have theirs.
func address(ctx context.Context, group string, opts shim.StartOpts) (string, error) {
	shared, err := shim.SocketAddress(ctx, opts.Address, group, opts.Debug)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(opts.Address), "shims")
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return shared, nil
	}
	return "unix://" + filepath.Join(dir, path.Base(shared)), nil
}

// remember tells the shim's clean-up where it listens.
func remember(address string) error { return os.WriteFile("address", []byte(address), 0o644) }

// groupOf is the value of the container's group annotation, else its id.
func groupOf(spec, id string) (string, error) {
	text, err := os.ReadFile(spec)
	if err != nil {
		return "", err
	}
	var s struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return "", fmt.Errorf("the container's %s: %w", spec, err)
	}
	if group := s.Annotations[groupAnnotation]; group != "" {
		return group, nil
	}
	return id, nil
}
