// Package debian installs Debian packages on the machine, and extracts them into root file systems
// for sandboxes without installing them.
package debian

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/tools/stack/internal/provision"
)

// Missing returns those of the packages that are not installed. Where there is no dpkg, that is all.
func Missing(ctx context.Context, packages []string) []string {
	if len(packages) == 0 {
		return nil
	}
	// dpkg-query exits with 1 when it doesn't know one of the names, and still prints the others.
	args := append([]string{"--show", "--showformat=${Package} ${db:Status-Status}\n"}, packages...)
	output, _ := exec.CommandContext(ctx, "dpkg-query", args...).Output()
	have := map[string]bool{}
	for line := range strings.Lines(string(output)) {
		if name, status, _ := strings.Cut(strings.TrimSpace(line), " "); status == "installed" {
			have[name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(packages), func(name string) bool { return have[name] })
}

// lockWait is how long we let another package manager finish, as one that runs at boot does.
const lockWait = 10 * time.Minute

// Install installs packages with apt-get. It waits for the locks of another package manager, and
// once apt-get install runs it is not interrupted: half-configured packages are worse than waiting.
func Install(ctx context.Context, job *provision.Job, packages []string) error {
	by := "apt-get install -y " + strings.Join(packages, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return &provision.Plain{Why: "this machine has no apt-get", Do: "install with its own package manager what Debian calls " + strings.Join(packages, ", ")}
	}
	if os.Geteuid() != 0 {
		return &provision.Plain{Why: "installing packages needs root", Do: "run `sudo " + by + "`"}
	}
	// An update that fails in part, as with a stale third-party source, need not matter: what does
	// is whether the packages can be had.
	if err := update(ctx, job); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		job.Logf("apt-get update: %v; trying with what it has", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockWait+20*time.Minute)
	defer cancel()
	args := append([]string{"-y", "-q", "--no-install-recommends", "-o", fmt.Sprintf("DPkg::Lock::Timeout=%.0f", lockWait.Seconds()), "install"}, packages...)
	return job.Run(ctx, aptGet(args...))
}

// update refreshes the package lists. Their lock, other than dpkg's, is one that apt does not wait for.
func update(ctx context.Context, job *provision.Job) error {
	deadline := time.Now().Add(lockWait)
	for {
		err := job.Run(ctx, aptGet("-q", "-o", "Acquire::Retries=3", "update"))
		if err == nil || ctx.Err() != nil || !job.Said("Could not get lock") || time.Now().After(deadline) {
			return err
		}
		job.Logf("waiting for another package manager")
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func aptGet(args ...string) *exec.Cmd {
	cmd := exec.Command("apt-get", args...)
	// Messages are matched and read by people in logs: in English, and without questions.
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "NEEDRESTART_MODE=l")
	return cmd
}
