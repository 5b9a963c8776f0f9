package debian

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Release returns the code name of the distribution's release, as in bookworm.
func Release() (string, error) {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(value, `"'`), nil
		}
	}
	return "", fmt.Errorf("/etc/os-release names no VERSION_CODENAME")
}

// Sources returns what apt on this machine is told about where the packages of a release are, as
// apt source files to write elsewhere: by name, deb822 (.sources) and one-line (.list). Third-party
// sources and other components than main are left out, mirrors and keys are kept.
func Sources(etc, release string) (map[string]string, error) {
	files := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(etc, "sources.list.d", "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range append([]string{filepath.Join(etc, "sources.list")}, paths...) {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		switch filepath.Ext(path) {
		case ".sources":
			files["host.sources"] += deb822(string(text), release)
		case ".list":
			files["host.list"] += oneLine(string(text), release)
		}
	}
	for name, text := range files {
		if text == "" {
			delete(files, name)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no source of main packages for %s in %s", release, etc)
	}
	return files, nil
}

// ofRelease keeps the suites of a release: itself, its updates and its security updates.
func ofRelease(suites []string, release string) []string {
	wanted := []string{release, release + "-updates", release + "-security"}
	return slices.DeleteFunc(suites, func(s string) bool { return !slices.Contains(wanted, s) })
}

// deb822 keeps the stanzas of a .sources file that have packages of the release.
func deb822(text, release string) string {
	var out strings.Builder
	for stanza := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		fields := map[string]string{}
		key := ""
		for line := range strings.SplitSeq(stanza, "\n") {
			switch {
			case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
			case line[0] == ' ' || line[0] == '\t':
				fields[key] += "\n" + line
			default:
				name, value, _ := strings.Cut(line, ":")
				key = strings.ToLower(name)
				fields[key] = strings.TrimSpace(value)
			}
		}
		suites := ofRelease(strings.Fields(fields["suites"]), release)
		if len(suites) == 0 || !slices.Contains(strings.Fields(fields["types"]), "deb") ||
			!slices.Contains(strings.Fields(fields["components"]), "main") || strings.EqualFold(fields["enabled"], "no") {
			continue
		}
		fmt.Fprintf(&out, "Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n", fields["uris"], strings.Join(suites, " "))
		for _, name := range []string{"Signed-By", "Trusted"} {
			if value := fields[strings.ToLower(name)]; value != "" {
				// A key may stand in the field itself, on lines of its own.
				fmt.Fprintf(&out, "%s: %s\n", name, value)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

// oneLine keeps the lines of a .list file that have packages of the release.
func oneLine(text, release string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		rest, isDeb := strings.CutPrefix(line, "deb ")
		if !isDeb {
			continue
		}
		options := ""
		if rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "[") {
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				continue
			}
			options, rest = rest[:end+1]+" ", rest[end+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) < 3 || len(ofRelease([]string{fields[1]}, release)) == 0 || !slices.Contains(fields[2:], "main") {
			continue
		}
		fmt.Fprintf(&out, "deb %s%s %s main\n", options, fields[0], fields[1])
	}
	return out.String()
}
