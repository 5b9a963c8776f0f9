package sandbox

import (
	"encoding/json"
	"fmt"
	"path/filepath"
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
	From       string // a writable layer to start with: a directory as of Layer, or a disk of CopyLayer; not kept
	Take       bool   // whether From is the sandbox's to take: nobody else is made of it; not kept
	Files      bool   // whether a workspace will be mounted; else /workspace is a tmpfs
}

// hostname inside: the principal's name.
func (s Spec) hostname() string {
	if s.Principal == "" {
		return "sandbox" // nobody's yet; never the node's own name
	}
	return s.Principal
}

func (s Spec) check() error {
	if err := schemas.CheckID("sandbox", s.ID); err != nil {
		return err
	}
	for what, name := range map[string]string{"tenant": s.Tenant, "workspace": s.Workspace, "principal": s.Principal} {
		if err := schemas.CheckName(what, name); err != nil {
			return err
		}
	}
	if err := s.checkIsolation(); err != nil {
		return err
	}
	if err := s.checkImage(); err != nil {
		return err
	}
	if s.From != "" && (!s.Isolation.WritableRoot || !filepath.IsAbs(s.From)) {
		return fmt.Errorf("layer %q: it needs a writable root and an absolute path", s.From)
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

	// Of a sandbox that was made to wait: its pool, and what it was made from.
	labelPool        = labelPrefix + "pool"
	labelFingerprint = labelPrefix + "fingerprint"
)

// labels of the sandbox's container.
func (s *Sandbox) labels() (map[string]string, error) {
	l, err := s.spec.labels(s.node.owner, s.ids)
	if err != nil || s.blank == nil {
		return l, err
	}
	pool, err := json.Marshal(s.blank.mold.Pool)
	l[labelPool], l[labelFingerprint] = string(pool), s.blank.fingerprint
	return l, err
}

// blankOf reads back what a sandbox waits as; nil if it was made for somebody.
func blankOf(l map[string]string, s Spec) (*blank, error) {
	if l[labelPool] == "" {
		return nil, nil
	}
	b := &blank{mold: Mold{Level: s.Level, Image: s.Image, Isolation: s.Isolation, Resources: s.Resources}, fingerprint: l[labelFingerprint]}
	if err := json.Unmarshal([]byte(l[labelPool]), &b.mold.Pool); err != nil {
		return nil, fmt.Errorf("container %q has a label that is not ours: %w", s.ID, err)
	}
	return b, nil
}

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
	if l[labelPool] != "" { // nobody's: it has no names
		return s, idRange(r), schemas.CheckID("sandbox", s.ID)
	}
	return s, idRange(r), s.check()
}
