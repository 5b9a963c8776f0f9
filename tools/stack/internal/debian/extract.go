package debian

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weftmesh/weft/tools/stack/internal/provision"
)

// record keeps, for those who scan an image for vulnerable packages, what mmdebstrap's extract
// variant does not: which packages are there, at which version, and which files are whose.
const record = `set -eu
info="$1/var/lib/dpkg/info"
mkdir -p "$info"
for deb in "$1"/var/cache/apt/archives/*.deb; do
  name=$(dpkg-deb -f "$deb" Package)
  { dpkg-deb -f "$deb"; echo "Status: install ok installed"; echo; } >>"$1/var/lib/dpkg/status"
  dpkg-deb --fsys-tarfile "$deb" | tar t | sed -e 's,^\./,/,' -e 's,\(.\)/$,\1,' >"$info/$name.list"
done
`

// Extract downloads packages and what they depend on, and unpacks them into a tar file at out. No
// maintainer script runs. Commands then run inside the tree, in a shell that ends at the first failure.
func Extract(ctx context.Context, job *provision.Job, release string, packages, commands []string, out string) error {
	if os.Geteuid() != 0 {
		return &provision.Plain{Why: "unpacking a root file system needs root", Do: "become root"}
	}
	sources, err := writeSources(job.Dir, release)
	if err != nil {
		return err
	}
	hooks, err := writeHooks(job.Dir, commands)
	if err != nil {
		return err
	}
	args := []string{"--mode=root", "--variant=extract", "--format=tar", "--include=" + strings.Join(packages, ",")}
	args = append(args, hooks...)
	for _, option := range acquire(ctx) {
		args = append(args, "--aptopt="+option)
	}
	cmd := exec.Command("mmdebstrap", append(append(args, release, out), sources...)...)
	// Debian's Perl complains about locales that the machine doesn't have.
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TMPDIR="+scratch(job.Dir))
	return job.Run(ctx, cmd)
}

// writeHooks writes what is to run on the unpacked tree into dir, and returns mmdebstrap's options.
func writeHooks(dir string, commands []string) ([]string, error) {
	var hooks []string
	for name, script := range map[string]string{"record.sh": record, "commands.sh": "set -eu\n" + strings.Join(commands, "\n") + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o644); err != nil {
			return nil, err
		}
	}
	hooks = append(hooks, fmt.Sprintf(`--extract-hook=sh %s "$1"`, quote(filepath.Join(dir, "record.sh"))))
	if len(commands) > 0 {
		hooks = append(hooks, fmt.Sprintf(`--extract-hook=chroot "$1" /bin/sh -s <%s`, quote(filepath.Join(dir, "commands.sh"))))
	}
	return hooks, nil
}

// writeSources writes this machine's apt sources for the release into dir and returns the paths.
func writeSources(dir, release string) ([]string, error) {
	files, err := Sources("/etc/apt", release)
	if err != nil {
		return nil, err
	}
	var paths []string
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// acquire returns the machine's settings for fetching packages, such as a proxy, which mmdebstrap's
// apt would not see.
func acquire(ctx context.Context) []string {
	output, err := exec.CommandContext(ctx, "apt-config", "dump", "--no-empty", "--format", "%F \"%v\";%n", "Acquire").Output()
	if err != nil {
		return nil
	}
	var options []string
	for line := range strings.Lines(string(output)) {
		for _, wanted := range []string{"Acquire::http", "Acquire::https", "Acquire::Retries ", "Acquire::ForceIPv", "Acquire::Check-Valid-Until ", "Acquire::Check-Date "} {
			if strings.HasPrefix(line, wanted) {
				options = append(options, strings.TrimSpace(line))
				break
			}
		}
	}
	return options
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
