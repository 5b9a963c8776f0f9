package main

import (
	"context"
	"fmt"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/containerd/ttrpc"
	v1 "gvisor.dev/gvisor/pkg/shim/v1"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// service is gVisor's, which runs containers, with one answer put right.
type service struct{ extension.TaskServiceExt }

// Shutdown ends the shim, unless it has more containers. Theirs answers nothing at all then, which containerd takes
// for a failure to delete the container before.
func (s service) Shutdown(ctx context.Context, r *task.ShutdownRequest) (*types.Empty, error) {
	reply, err := s.TaskServiceExt.Shutdown(ctx, r)
	if reply == nil && err == nil {
		reply = &types.Empty{}
	}
	return reply, err
}

// RegisterTTRPC serves it where containerd calls.
func (s service) RegisterTTRPC(server *ttrpc.Server) error {
	task.RegisterTaskService(server, s)
	return nil
}

// register enters the service among the shim's parts.
func register() {
	registry.Register(&plugin.Registration{
		Type: plugins.TTRPCPlugin, ID: "task", Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn: func(init *plugin.InitContext) (any, error) {
			events, err := part[shim.Publisher](init, plugins.EventPlugin, "publisher")
			if err != nil {
				return nil, err
			}
			end, err := part[shutdown.Service](init, plugins.InternalPlugin, "shutdown")
			if err != nil {
				return nil, err
			}
			inner, err := v1.NewShimRedirector(init.Context, events, end)
			return service{inner}, err
		},
	})
}

// part finds another part of the shim.
func part[T any](init *plugin.InitContext, kind plugin.Type, id string) (T, error) {
	var none T
	found, err := init.GetByID(kind, id)
	if err != nil {
		return none, err
	}
	p, ok := found.(T)
	if !ok {
		return none, fmt.Errorf("%s %s is a %T", kind, id, found)
	}
	return p, nil
}
