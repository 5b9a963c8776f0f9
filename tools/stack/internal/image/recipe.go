// Package image turns Debian packages into the images of the built-in templates, without a registry
// and without running a container: a recipe says what goes in, and the result is an OCI archive.
package image

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Recipe is what deploy/templates holds, one JSON file per template.
type Recipe struct {
	Name     string            `json:"name"`
	Version  string            `json:"version"`
	Summary  string            `json:"summary"`
	Extends  string            `json:"extends,omitempty"`  // another recipe: all of it, then this one's
	Packages []string          `json:"packages"`           // with what they depend on
	Without  []string          `json:"without,omitempty"`  // packages that are dependencies on paper only
	Drop     []string          `json:"drop,omitempty"`     // paths and shell patterns; a directory goes with all in it
	Keep     []string          `json:"keep,omitempty"`     // patterns that Drop must not match
	Commands []string          `json:"commands,omitempty"` // run as root inside the tree, with /bin/sh -c
	Dirs     []Entry           `json:"dirs,omitempty"`
	Files    []Entry           `json:"files,omitempty"`
	Links    map[string]string `json:"links,omitempty"`     // path to target
	Setuid   []string          `json:"setuid,omitempty"`    // programs of root's that keep that right; of use only with root inside
	CABundle string            `json:"ca_bundle,omitempty"` // path of all certificates in one file
	Config   Config            `json:"config"`
}

// Entry is a directory, or a file with its content.
type Entry struct {
	Path    string   `json:"path"`
	Mode    string   `json:"mode"` // octal
	Owner   int      `json:"owner,omitempty"`
	Content []string `json:"content,omitempty"` // lines
}

// Config is what a container of this image starts with.
type Config struct {
	User       string            `json:"user,omitempty"`
	WorkingDir string            `json:"working_dir,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Cmd        []string          `json:"cmd,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// Reference is the name under which containerd knows the image.
func (r Recipe) Reference() string { return "weft.local/template/" + r.Name + ":" + r.Version }

// Load reads the recipe name from dir, with what it extends.
func Load(dir, name string) (Recipe, error) { return load(dir, name, nil) }

func load(dir, name string, above []string) (Recipe, error) {
	if slices.Contains(above, name) {
		return Recipe{}, fmt.Errorf("template %s extends itself", name)
	}
	path := filepath.Join(dir, name+".json")
	f, err := os.Open(path)
	if err != nil {
		return Recipe{}, err
	}
	defer f.Close()
	var r Recipe
	decoder := json.NewDecoder(f)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return Recipe{}, fmt.Errorf("%s: %w", path, err)
	}
	if r.Name != name {
		return Recipe{}, fmt.Errorf("%s: the name in it is %q", path, r.Name)
	}
	if r.Extends != "" {
		base, err := load(dir, r.Extends, append(above, name))
		if err != nil {
			return Recipe{}, err
		}
		r = base.extendedBy(r)
	}
	return r, r.check(path)
}

// extendedBy is all of base and then all of r, whose single values win.
func (base Recipe) extendedBy(r Recipe) Recipe {
	r.Packages = append(slices.Clone(base.Packages), r.Packages...)
	r.Without = append(slices.Clone(base.Without), r.Without...)
	r.Drop = append(slices.Clone(base.Drop), r.Drop...)
	r.Keep = append(slices.Clone(base.Keep), r.Keep...)
	r.Commands = append(slices.Clone(base.Commands), r.Commands...)
	r.Dirs = append(slices.Clone(base.Dirs), r.Dirs...)
	r.Files = append(slices.Clone(base.Files), r.Files...)
	r.Links = union(base.Links, r.Links)
	r.Setuid = append(slices.Clone(base.Setuid), r.Setuid...)
	r.Config.Env = union(base.Config.Env, r.Config.Env)
	r.Config.Labels = union(base.Config.Labels, r.Config.Labels)
	if r.CABundle == "" {
		r.CABundle = base.CABundle
	}
	if r.Config.User == "" {
		r.Config.User = base.Config.User
	}
	if r.Config.WorkingDir == "" {
		r.Config.WorkingDir = base.Config.WorkingDir
	}
	if len(r.Config.Cmd) == 0 {
		r.Config.Cmd = base.Config.Cmd
	}
	return r
}

func union(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

var (
	nameForm    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.-]{0,31}$`)
	packageForm = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
)

// check refuses what would end up outside of the tree or on a command line as something else.
func (r Recipe) check(path string) error {
	if !nameForm.MatchString(r.Name) || !versionForm.MatchString(r.Version) {
		return fmt.Errorf("%s: name and version must be as in python and 1", path)
	}
	if len(r.Packages) == 0 {
		return fmt.Errorf("%s: no packages", path)
	}
	for _, name := range slices.Concat(r.Packages, r.Without) {
		if !packageForm.MatchString(name) {
			return fmt.Errorf("%s: %q is not the name of a package", path, name)
		}
	}
	paths := slices.Clone(r.Setuid)
	for _, e := range slices.Concat(r.Dirs, r.Files) {
		paths = append(paths, e.Path)
		if _, err := e.mode(); err != nil {
			return fmt.Errorf("%s: %s: %w", path, e.Path, err)
		}
	}
	for link := range r.Links {
		paths = append(paths, link)
	}
	if r.CABundle != "" {
		paths = append(paths, r.CABundle)
	}
	for _, p := range paths {
		if !strings.HasPrefix(p, "/") || filepath.Clean(p) != p || p == "/" {
			return fmt.Errorf("%s: %q is not a clean absolute path", path, p)
		}
	}
	for _, pattern := range slices.Concat(r.Drop, r.Keep) {
		if _, err := filepath.Match(pattern, "/"); err != nil || !strings.HasPrefix(pattern, "/") {
			return fmt.Errorf("%s: %q is not a pattern of absolute paths", path, pattern)
		}
	}
	return nil
}
