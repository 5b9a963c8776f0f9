package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/weftmesh/weft/tools/stack/internal/provision"
)

// goBuild is a program to build from the module proxy: either packages of a published module, or
// the main package of a module of ours that pins what it builds.
type goBuild struct {
	cgo           bool
	tags, ldflags string

	module, version string   // a published module …
	prefix          string   // … or what comes before the names of its packages
	packages        []string // names of programs

	dir    string // a module of ours …
	output string // … and the file to make, or the directory for all its programs, with a slash at its end
}

// recipe is what decides the result, apart from the compiler.
func (b goBuild) recipe() any {
	list := []any{b.cgo, b.tags, b.ldflags, b.module, b.prefix, b.version, b.packages, b.output, runtime.GOARCH}
	if b.dir != "" {
		list = append(list, digest(b.dir))
	}
	return list
}

// digest covers the files of a module of ours: what it requires, and its few lines of code.
func digest(dir string) string {
	hash := sha256.New()
	var names []string
	for _, pattern := range []string{"go.mod", "go.sum", "*.go", "*/*.go", "stubs/*/*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are sound
		names = append(names, found...)
	}
	slices.Sort(names)
	for _, name := range names {
		text, err := os.ReadFile(name)
		fmt.Fprintf(hash, "%s %d %v\n", strings.TrimPrefix(name, dir), len(text), err)
		hash.Write(text)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:12])
}

// install builds packages of a published module into bin.
func (b goBuild) install(ctx context.Context, job *provision.Job) error {
	args := append([]string{"install"}, b.flags()...)
	for _, name := range b.packages {
		if b.module != "" {
			args = append(args, b.module+"@"+b.version)
		} else {
			args = append(args, b.prefix+name+"@"+b.version)
		}
	}
	return job.Run(ctx, b.command("/", args, "GOBIN="+filepath.Join(job.Dir, "bin")))
}

// build builds a module of ours.
func (b goBuild) build(ctx context.Context, job *provision.Job) error {
	what := "."
	if strings.HasSuffix(b.output, "/") {
		what = "./..."
	}
	args := append([]string{"build", "-mod=readonly", "-o", job.Dir + "/" + b.output}, b.flags()...)
	return job.Run(ctx, b.command(b.dir, append(args, what)))
}

func (b goBuild) flags() []string {
	return []string{"-v", "-p", fmt.Sprint(compilers()), "-trimpath", "-buildvcs=false", "-tags", b.tags, "-ldflags", strings.TrimSpace("-s -w " + b.ldflags)}
}

func (b goBuild) command(dir string, args []string, env ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cgo := "0"
	if b.cgo {
		cgo = "1"
	}
	cmd.Env = append(os.Environ(), append(env, "GOWORK=off", "CGO_ENABLED="+cgo, "GOOS=", "GOARCH=")...)
	return cmd
}

// builds is how many programs are built at a time, compilers how many packages each compiles at a
// time: two of each on two cores, because a build alone leaves a core idle at its beginning and end.
func builds() int { return min(2, runtime.NumCPU()) }

func compilers() int { return max(2, runtime.NumCPU()/2) }
