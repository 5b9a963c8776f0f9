package submission

import (
	"maps"
	"time"

	"github.com/weftmesh/weft/schemas/workspace"
)

// Defaults of a run where neither submission nor agent nor template says anything.
const (
	DefaultWorkdir     = "/workspace"
	DefaultLevel       = "standard"
	DefaultFiles       = "private"
	DefaultTimeout     = time.Hour
	DefaultCPUMillis   = 1000
	DefaultMemoryBytes = 512 << 20
	DefaultPIDs        = 256
	DefaultDiskBytes   = 1 << 30
	DefaultOutputBytes = 64 << 20
)

// Resolve makes what a node runs: the submission over the agent (nil where the submission names a
// template and command) over the template over the defaults. Without an agent it runs as principal.
func Resolve(s *workspace.Submission, principal string, a *workspace.Agent, t *workspace.Template) *workspace.RunSpec {
	if a == nil {
		a = &workspace.Agent{Name: principal}
	}
	r := &workspace.RunSpec{
		Principal: a.Name,
		Argv:      a.Entrypoint,
		Env:       merge(t.Env, a.Env, s.Env),
		Workdir:   first(a.Workdir, t.Workdir, DefaultWorkdir),
		Image:     t.Image,
		Level:     first(s.Level, a.Level, t.Level, DefaultLevel),
		Resources: Resources(a.Resources, t.Resources),
		Isolation: t.Isolation,
		Files:     first(a.Files, DefaultFiles),
		Secrets:   a.Secrets,
		TimeoutMS: firstInt(s.TimeoutMS, a.TimeoutMS, DefaultTimeout.Milliseconds()),
	}
	if r.Level != workspace.LevelCustom {
		r.Custom = nil // of the template's own level, which this is not
	}
	if len(s.Command) > 0 {
		r.Argv = s.Command
	}
	return r
}

// Resources takes each limit from the first that sets it, then from the defaults.
func Resources(from ...workspace.Resources) workspace.Resources {
	from = append(from, workspace.Resources{CPUMillis: DefaultCPUMillis, MemoryBytes: DefaultMemoryBytes,
		PIDs: DefaultPIDs, DiskBytes: DefaultDiskBytes, OutputBytes: DefaultOutputBytes})
	var r workspace.Resources
	for _, f := range from {
		r.CPUMillis = firstInt(r.CPUMillis, f.CPUMillis)
		r.MemoryBytes = firstInt(r.MemoryBytes, f.MemoryBytes)
		r.PIDs = firstInt(r.PIDs, f.PIDs)
		r.DiskBytes = firstInt(r.DiskBytes, f.DiskBytes)
		r.OutputBytes = firstInt(r.OutputBytes, f.OutputBytes)
		r.CPUWeight = firstInt(r.CPUWeight, f.CPUWeight)
		r.OpenFiles = firstInt(r.OpenFiles, f.OpenFiles)
		r.IOReadBPS = firstInt(r.IOReadBPS, f.IOReadBPS)
		r.IOWriteBPS = firstInt(r.IOWriteBPS, f.IOWriteBPS)
	}
	return r
}

// Override reports whether the submission changes what an agent's own code does: its command or its
// environment, with which one can make a program run something else.
func Override(s *workspace.Submission) bool {
	return s.Agent != "" && (len(s.Command) > 0 || len(s.Env) > 0)
}

func merge(ms ...map[string]string) map[string]string {
	var out map[string]string
	for _, m := range ms {
		if len(m) > 0 && out == nil {
			out = map[string]string{}
		}
		maps.Copy(out, m)
	}
	return out
}

func first(ss ...string) string {
	for _, s := range ss {
		if s != "" {
			return s
		}
	}
	return ""
}

func firstInt(ns ...int64) int64 {
	for _, n := range ns {
		if n != 0 {
			return n
		}
	}
	return 0
}
