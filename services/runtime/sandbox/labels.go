package sandbox

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Spec says what a sandbox is. It is kept in the container's labels, which are the record of what is
// ours; so it holds no secret.
type Spec struct {
	ID         string // 20 characters of base32hex
	Generation int
	Tenant     string
	Workspace  string
	Principal  string // as whom it runs
	Task       string // empty for an interactive sandbox
	Attempt    int
	Level      string
	Image      string // see containerd.Engine.Image
	Isolation  workspace.Isolation
	Resources  workspace.Resources
	Files      bool // whether a workspace will be mounted; else /workspace is a tmpfs
}

// hostname inside: the principal's name.
func (s Spec) hostname() string { return s.Principal }

func (s Spec) check() error {
	if err := schemas.CheckID("sandbox", s.ID); err != nil {
		return err
	}
	for what, name := range map[string]string{"tenant": s.Tenant, "workspace": s.Workspace, "principal": s.Principal} {
		if err := schemas.CheckName(what, name); err != nil {
			return err
		}
	}
	if s.Task == "" {
		return nil
	}
	return schemas.CheckID("task", s.Task)
}

const labelPrefix = "dev.weft/"

// The labels of a container and its snapshot.
const (
	labelOwner = labelPrefix + "owner" // whose node's it is
	labelRange = labelPrefix + "range"
)

// labels of a sandbox that owner's node made with range r.
func (s Spec) labels(owner string, r idRange) (map[string]string, error) {
	resources, err := json.Marshal(s.Resources)
	if err != nil {
		return nil, err
	}
	isolation, err := json.Marshal(s.Isolation)
	if err != nil {
		return nil, err
	}
	l := map[string]string{
		labelOwner:                 owner,
		labelRange:                 strconv.Itoa(int(r)),
		labelPrefix + "sandbox":    s.ID,
		labelPrefix + "generation": strconv.Itoa(s.Generation),
		labelPrefix + "tenant":     s.Tenant,
		labelPrefix + "workspace":  s.Workspace,
		labelPrefix + "principal":  s.Principal,
		labelPrefix + "level":      s.Level,
		labelPrefix + "image":      s.Image,
		labelPrefix + "files":      strconv.FormatBool(s.Files),
		labelPrefix + "resources":  string(resources),
		labelPrefix + "isolation":  string(isolation),
	}
	if s.Task != "" {
		l[labelPrefix+"task"], l[labelPrefix+"attempt"] = s.Task, strconv.Itoa(s.Attempt)
	}
	return l, nil
}

// specOf reads them back.
func specOf(l map[string]string) (Spec, idRange, error) {
	get := func(name string) string { return l[labelPrefix+name] }
	var bad []string
	number := func(name string) int {
		v := get(name)
		if v == "" {
			return 0
		}
		i, err := strconv.Atoi(v)
		if err != nil {
			bad = append(bad, name)
		}
		return i
	}
	s := Spec{
		ID: get("sandbox"), Generation: number("generation"), Tenant: get("tenant"), Workspace: get("workspace"), Principal: get("principal"),
		Task: get("task"), Attempt: number("attempt"), Level: get("level"), Image: get("image"), Files: get("files") == "true",
	}
	r := number("range")
	if err := json.Unmarshal([]byte(get("resources")), &s.Resources); err != nil {
		bad = append(bad, "resources")
	}
	if v := get("isolation"); v != "" && json.Unmarshal([]byte(v), &s.Isolation) != nil { // older ones have none
		bad = append(bad, "isolation")
	}
	if len(bad) > 0 || r < 0 || r >= rangeCount {
		return Spec{}, 0, fmt.Errorf("container %q has labels that are not ours: %v", get("sandbox"), bad)
	}
	return s, idRange(r), s.check()
}
