// Package definition checks what people define: workspaces, agents, templates and triggers. Every
// error is a sentence that names the field.
package definition

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/submission"
)

var (
	levels = []string{"standard", "high", "custom"}
	files  = []string{"private", "readonly", "none"}
	ends   = []string{"submitted", "rejected", "queued", "running", "retrying", "cancelling", "complete", "error", "cancelled"}
)

// Tenant checks a tenant's name and quota.
func Tenant(t *workspace.Tenant) error {
	if err := schemas.CheckName("tenant", t.Name); err != nil {
		return err
	}
	if schemas.Reserved(t.Name) {
		return fmt.Errorf("tenant %q: the name is reserved; choose another", t.Name)
	}
	if err := policy(t.Policy); err != nil {
		return err
	}
	return quota(t.Quota)
}

// Workspace checks a workspace's name, quota and labels.
func Workspace(w *workspace.Workspace) error {
	if err := schemas.CheckName("workspace", w.Name); err != nil {
		return err
	}
	if err := quota(w.Quota); err != nil {
		return err
	}
	return submission.CheckLabels(w.Labels)
}

func quota(q workspace.Quota) error {
	for what, n := range map[string]int64{"max_pending": int64(q.MaxPending), "max_running": int64(q.MaxRunning),
		"disk_bytes": q.DiskBytes, "sandboxes": int64(q.Sandboxes), "weight": int64(q.Weight),
		"pool_members": int64(q.PoolMembers)} {
		if n < 0 {
			return fmt.Errorf(`field "quota.%s" must not be negative`, what)
		}
	}
	if q.Weight > 1000 {
		return fmt.Errorf(`field "quota.weight" must be at most 1000, not %d`, q.Weight)
	}
	return nil
}

// Template checks an image with its defaults.
func Template(t *workspace.Template) error {
	if err := schemas.CheckName("template", t.Name); err != nil {
		return err
	}
	if t.Image == "" || len(t.Image) > 1024 || strings.ContainsAny(t.Image, " \t\r\n\x00") {
		return fmt.Errorf(`field "image" must be a reference or the path of an OCI archive, without spaces`)
	}
	if err := level(t.Level); err != nil {
		return err
	}
	if err := isolation(t.Level, t.Isolation); err != nil {
		return err
	}
	if err := resources(t.Resources); err != nil {
		return err
	}
	if err := workdir(t.Workdir); err != nil {
		return err
	}
	return submission.CheckEnv(t.Env)
}

// Agent checks an agent's definition. Whether its template exists is looked up elsewhere.
func Agent(a *workspace.Agent) error {
	if err := schemas.CheckName("agent", a.Name); err != nil {
		return err
	}
	if err := schemas.CheckName("template", a.Template); err != nil {
		return err
	}
	if len(a.Entrypoint) == 0 {
		return fmt.Errorf(`field "entrypoint" must name the program to run`)
	}
	if err := submission.CheckArgv("entrypoint", a.Entrypoint); err != nil {
		return err
	}
	if err := submission.CheckEnv(a.Env); err != nil {
		return err
	}
	if err := level(a.Level); err != nil {
		return err
	}
	if err := resources(a.Resources); err != nil {
		return err
	}
	if err := workdir(a.Workdir); err != nil {
		return err
	}
	if err := Files(a.Files); err != nil {
		return err
	}
	if err := submission.CheckTries(a.TimeoutMS, a.MaxAttempts); err != nil {
		return err
	}
	if a.BackoffMS < 0 || a.MaxRunning < 0 {
		return fmt.Errorf(`fields "backoff_ms" and "max_running" must not be negative`)
	}
	return secrets(a.Secrets)
}

func secrets(uses []workspace.SecretUse) error {
	if len(uses) > 64 {
		return fmt.Errorf(`field "secrets" names %d, more than 64`, len(uses))
	}
	seen := map[workspace.SecretUse]bool{}
	for _, u := range uses {
		if err := schemas.CheckName("secret", u.Name); err != nil {
			return err
		}
		switch u.As {
		case "file", "vault":
			if u.Env != "" {
				return fmt.Errorf(`secret %s: "env" is only for as: env`, u.Name)
			}
		case "env":
			if err := submission.CheckEnvName(u.Env); err != nil {
				return fmt.Errorf("secret %s: %w", u.Name, err)
			}
		default:
			return fmt.Errorf(`secret %s: "as" must be file, env or vault`, u.Name)
		}
		if seen[u] {
			return fmt.Errorf("secret %s is named twice in the same way", u.Name)
		}
		seen[u] = true
	}
	return nil
}

// Trigger checks a trigger: what starts it, who may, and that what it starts can run.
func Trigger(t *workspace.Trigger) error {
	if err := schemas.CheckName("trigger", t.Name); err != nil {
		return err
	}
	if (t.Message == nil) == (t.Event == nil) {
		return fmt.Errorf(`give exactly one of "message" and "event"`)
	}
	if m := t.Message; m != nil {
		if err := schemas.CheckName("recipient", m.To); err != nil {
			return err
		}
		if err := names("message.from", "sender", m.From); err != nil {
			return err
		}
	}
	if e := t.Event; e != nil {
		if len(e.Events) == 0 {
			return fmt.Errorf(`field "event.events" must name at least one of %s`, strings.Join(ends, ", "))
		}
		for _, ev := range e.Events {
			if !slices.Contains(ends, ev) {
				return fmt.Errorf(`field "event.events": %q is none of %s`, ev, strings.Join(ends, ", "))
			}
		}
		if err := names("event.agents", "agent", e.Agents); err != nil {
			return err
		}
		if err := submission.CheckLabels(e.Labels); err != nil {
			return err
		}
	}
	if len(t.Start.Input) > 0 {
		return fmt.Errorf(`field "start.input" must be empty: what started it becomes the input`)
	}
	if err := submission.Check(&t.Start); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	return nil
}

func names(field, what string, ns []string) error {
	if len(ns) == 0 || len(ns) > 256 {
		return fmt.Errorf("field %q must name 1 to 256", field)
	}
	for _, n := range ns {
		if err := schemas.CheckName(what, n); err != nil {
			return err
		}
	}
	return nil
}

// Files checks how a run sees the workspace's files; empty is the default.
func Files(f string) error {
	if f != "" && !slices.Contains(files, f) {
		return fmt.Errorf(`field "files" must be one of %s`, strings.Join(files, ", "))
	}
	return nil
}

func level(l string) error {
	if l != "" && !slices.Contains(levels, l) {
		return fmt.Errorf(`field "level" must be one of %s`, strings.Join(levels, ", "))
	}
	return nil
}

func resources(r workspace.Resources) error {
	for what, n := range map[string]int64{"cpu_millis": r.CPUMillis, "memory_bytes": r.MemoryBytes, "pids": r.PIDs,
		"disk_bytes": r.DiskBytes, "output_bytes": r.OutputBytes, "io_read_bps": r.IOReadBPS, "io_write_bps": r.IOWriteBPS} {
		if n < 0 {
			return fmt.Errorf(`field "resources.%s" must not be negative`, what)
		}
	}
	if r.MemoryBytes > 0 && r.MemoryBytes < 4<<20 {
		return fmt.Errorf(`field "resources.memory_bytes" must be at least 4 MiB`)
	}
	if r.CPUWeight < 0 || r.CPUWeight > 10_000 {
		return fmt.Errorf(`field "resources.cpu_weight" must be 1 to 10000, or 0 for the default`)
	}
	if r.OpenFiles != 0 && (r.OpenFiles < 64 || r.OpenFiles > 1<<20) {
		return fmt.Errorf(`field "resources.open_files" must be 64 to 1048576, or 0 for the default`)
	}
	return nil
}

// Resources checks limits that come from a request.
func Resources(r workspace.Resources) error { return resources(r) }

func workdir(w string) error {
	if w != "" && (!path.IsAbs(w) || path.Clean(w) != w || strings.IndexByte(w, 0) >= 0 || len(w) > 4096) {
		return fmt.Errorf(`field "workdir" must be an absolute, clean path`)
	}
	return nil
}
