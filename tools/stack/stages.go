package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/tools/stack/internal/debian"
	"github.com/weftmesh/weft/tools/stack/internal/image"
	"github.com/weftmesh/weft/tools/stack/internal/provision"
)

// The versions that were tried together; deploy/adr has the decision and its reasons.
const (
	containerdVersion = "2.4.2"
	runcVersion       = "1.5.2"
	openbaoVersion    = "2.4.0"
	ferretdbVersion   = "1.24.2"
	gvisorVersion     = "20260905.0"
)

// catalog is all that can be provisioned.
type catalog struct {
	stages   map[string]provision.Stage
	madeWith map[string][]string // Debian packages that a stage is made with
}

// newCatalog describes the stages for the repository at root.
func newCatalog(root string) (catalog, error) {
	c := catalog{
		stages: map[string]provision.Stage{
			"containerd": containerdStage(), "runc": runcStage(), "openbao": openbaoStage(root), "ferretdb": ferretdbStage(root),
			"gvisor": gvisorStage(root),
		},
		madeWith: map[string][]string{"runc": {"gcc", "libc6-dev", "libseccomp-dev", "pkg-config"}},
	}
	for _, name := range []string{"base", "python", "debian"} {
		stage, err := templateStage(root, name)
		if err != nil {
			return catalog{}, err
		}
		c.stages[name] = stage
		c.madeWith[name] = []string{"mmdebstrap", "ca-certificates"}
	}
	return c, nil
}

func packagesStage(packages []string) provision.Stage {
	return provision.Stage{
		Name: "packages", What: "Debian packages", Expect: 40 * time.Second, Recipe: packages,
		Installed: func(ctx context.Context) (string, bool) {
			return strings.Join(packages, " "), len(debian.Missing(ctx, packages)) == 0
		},
		Make: func(ctx context.Context, job *provision.Job) error {
			return debian.Install(ctx, job, debian.Missing(ctx, packages))
		},
	}
}

func containerdStage() provision.Stage {
	build := goBuild{
		tags:     "no_btrfs no_devmapper no_zfs",
		packages: []string{"containerd", "containerd-shim-runc-v2", "ctr"},
		prefix:   "github.com/containerd/containerd/v2/cmd/", version: "v" + containerdVersion,
	}
	return provision.Stage{
		Name: "containerd", What: "containerd " + containerdVersion + ", its shim and ctr", Version: containerdVersion,
		Expect: 130 * time.Second, Heavy: true, Recipe: build.recipe(),
		Files:     []string{"bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr"},
		Installed: onPath("containerd"), Works: works("containerd"), Make: build.install,
		Lost: "no sandbox can run", Remedy: "install containerd 2.1 or later with containerd-shim-runc-v2 so that both are on PATH",
	}
}

// runcStage links statically, so that what is in the cache needs no library of the machine. Without
// the tag seccomp it would build in silence without that; Works looks.
func runcStage() provision.Stage {
	build := goBuild{
		cgo: true, tags: "seccomp netgo osusergo", ldflags: "-linkmode external -extldflags -static",
		packages: []string{"runc"}, module: "github.com/opencontainers/runc", version: "v" + runcVersion,
	}
	return provision.Stage{
		Name: "runc", What: "runc " + runcVersion + " with seccomp", Version: runcVersion, Needs: []string{"packages"},
		Expect: 25 * time.Second, Heavy: true, Recipe: build.recipe(), Files: []string{"bin/runc"},
		Installed: onPath("runc"), Works: works("runc"), Make: build.install,
		Lost: "no sandbox can run", Remedy: "install runc 1.2.8, 1.3.3, 1.4.0 or later, built with seccomp, so that it is on PATH",
	}
}

func openbaoStage(root string) provision.Stage {
	build := goBuild{dir: filepath.Join(root, "tools", "openbao"), output: "bin/bao",
		ldflags: "-X github.com/openbao/openbao/version.fullVersion=" + openbaoVersion}
	return provision.Stage{
		Name: "openbao", What: "OpenBao " + openbaoVersion + ", the secrets server", Version: openbaoVersion,
		Expect: 5 * time.Minute, Heavy: true, Recipe: build.recipe(), Files: []string{"bin/bao"},
		Installed: onPath("bao"), Works: works("bao"), Make: build.build,
		Lost: "no credentials can be issued", Remedy: "install OpenBao 2.0 or Vault 1.14 or later so that bao or vault is on PATH",
	}
}

func ferretdbStage(root string) provision.Stage {
	build := goBuild{dir: filepath.Join(root, "tools", "ferretdb"), output: "bin/ferretdb", tags: "ferretdb_no_postgresql"}
	return provision.Stage{
		Name: "ferretdb", What: "FerretDB " + ferretdbVersion + ", a Mongo-wire server for tests", Version: ferretdbVersion,
		Expect: 70 * time.Second, Heavy: true, Recipe: build.recipe(), Files: []string{"bin/ferretdb"}, Make: build.build,
		Lost: "the MongoDB adapter can't be tested",
	}
}

func gvisorStage(root string) provision.Stage {
	build := goBuild{dir: filepath.Join(root, "tools", "gvisor"), output: "bin/",
		ldflags: "-X gvisor.dev/gvisor/runsc/version.version=release-" + gvisorVersion}
	return provision.Stage{
		Name: "gvisor", What: "gVisor " + gvisorVersion + ", for level high", Version: gvisorVersion,
		Expect: 100 * time.Second, Heavy: true, Recipe: build.recipe(), Files: []string{"bin/runsc", "bin/containerd-shim-runsc-v1"},
		Installed: onPath("runsc"), Works: works("runsc"), Make: build.build,
		Lost: "no sandbox of level high can run", Remedy: "install gVisor " + gvisorVersion + " or later so that runsc and containerd-shim-runsc-v1 are on PATH",
	}
}

// templateFormat is part of every template's recipe: raise it when the code that makes them changes
// what comes out.
const templateFormat = 1

func templateStage(root, name string) (provision.Stage, error) {
	recipe, err := image.Load(filepath.Join(root, "deploy", "templates"), name)
	if err != nil {
		return provision.Stage{}, err
	}
	release, releaseErr := debian.Release()
	archive := "images/" + name + ".tar"
	return provision.Stage{
		Name: name, What: "template " + name + ", an image from Debian packages", Version: recipe.Version + "-" + release, Needs: []string{"packages"},
		Expect: 15 * time.Second, Recipe: []any{templateFormat, recipe, release, runtime.GOARCH}, Files: []string{archive},
		Make: func(ctx context.Context, job *provision.Job) error {
			if releaseErr != nil {
				return &provision.Plain{Why: releaseErr.Error(), Do: "run on Debian or a distribution made from it"}
			}
			extracted, rootfs := filepath.Join(job.Dir, "extracted.tar"), filepath.Join(job.Dir, "rootfs.tar")
			if err := debian.Extract(ctx, job, release, recipe.Packages, recipe.Commands, extracted); err != nil {
				return err
			}
			job.Logf("making the image %s", recipe.Reference())
			if err := image.WriteRootfs(recipe, extracted, rootfs); err != nil {
				return err
			}
			return image.Archive(recipe, rootfs, runtime.GOARCH, release, job.Dir, filepath.Join(job.Dir, archive))
		},
		Lost: "agents that ask for template " + name + " can't start",
	}, nil
}

// onPath looks for what the machine has, and for what the operator names in the environment.
func onPath(name string) func(context.Context) (string, bool) {
	return func(context.Context) (string, bool) {
		if path := os.Getenv(toolchain.Variable(name)); path != "" {
			_, err := exec.LookPath(path)
			return path, err == nil
		}
		found, err := toolchain.Installed(name)
		return fmt.Sprintf("%s (%s)", found.Path, found.Version), err == nil
	}
}

func works(name string) func(string) error {
	return func(path string) error {
		_, err := toolchain.Serves(name, path)
		return err
	}
}
