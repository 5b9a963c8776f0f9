package definition

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
)

func TestIsolation(t *testing.T) {
	custom := func(c workspace.Custom) workspace.Template {
		return workspace.Template{Level: "custom", Isolation: workspace.Isolation{Custom: &c, RootInside: true}}
	}
	for field, tpl := range map[string]workspace.Template{
		`"seccomp"`:          {Isolation: workspace.Isolation{Seccomp: "none"}},
		`"custom" states`:    {Level: "custom"},
		`for no other`:       {Level: "high", Isolation: workspace.Isolation{Custom: &workspace.Custom{}}},
		`"custom.runtime"`:   custom(workspace.Custom{Runtime: "runc"}),
		`name, as io`:        custom(workspace.Custom{Runtime: "/usr/bin/evil"}),
		`"custom.masked"`:    custom(workspace.Custom{Masked: []string{"etc"}}),
		`"/../etc"`:          custom(workspace.Custom{Masked: []string{"/../etc"}}),
		`"custom.read_only"`: custom(workspace.Custom{ReadOnly: []string{"/.weft/run"}}),
		`"/proc"`:            custom(workspace.Custom{Masked: []string{"/proc"}}),
		`than 64`:            custom(workspace.Custom{Masked: make([]string, 65)}),
		`"custom.tmp_bytes"`: custom(workspace.Custom{Tmp: -1}),
		`"custom.shm_bytes"`: custom(workspace.Custom{Shm: 100}),
		`CAP_SYS_ADMIN`:      custom(workspace.Custom{Capabilities: []string{"CAP_SYS_ADMIN"}}),
		`CAP_SYS_PTRACE`:     custom(workspace.Custom{Capabilities: []string{"CAP_SYS_PTRACE"}}),
		`CAP_CHOWN twice`:    custom(workspace.Custom{Capabilities: []string{"CAP_CHOWN", "CAP_CHOWN"}}),
		`needs "root_inside"`: {Level: "custom", Isolation: workspace.Isolation{Custom: &workspace.Custom{
			Capabilities: []string{"CAP_CHOWN"}}}},
		`"resources.cpu_weight"`:  {Resources: workspace.Resources{CPUWeight: 10_001}},
		`"resources.open_files"`:  {Resources: workspace.Resources{OpenFiles: 3}},
		`"resources.io_read_bps"`: {Resources: workspace.Resources{IOReadBPS: -1}},
	} {
		tpl.Name, tpl.Image = "t", "base"
		require.ErrorContains(t, Template(&tpl), field)
	}
	for _, tpl := range []workspace.Template{
		{Isolation: workspace.Isolation{RootInside: true, WritableRoot: true, Seccomp: "node"}},
		{Level: "high", Isolation: workspace.Isolation{Seccomp: "python"}},
		custom(workspace.Custom{Runtime: "io.containerd.kata.v2", Masked: []string{"/proc/meminfo"}, ReadOnly: []string{"/etc/ssl"}, Tmp: 1 << 30,
			Capabilities: []string{"CAP_NET_BIND_SERVICE", "CAP_NET_RAW"}}),
		{Resources: workspace.Resources{CPUWeight: 10_000, OpenFiles: 64, IOReadBPS: 1, IOWriteBPS: 1}},
	} {
		tpl.Name, tpl.Image = "t", "base"
		require.NoError(t, Template(&tpl))
	}
}
