package manifest

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

func validUTF8(s string) bool { return utf8.ValidString(s) }

// SplitPath checks a path that came from outside and gives its components. The root is "" and has
// none. A path is relative and clean: no empty, "." or ".." component, so it can't leave the tree.
func SplitPath(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	if len(path) > MaxPath {
		return nil, fmt.Errorf("path of %d bytes is longer than %d", len(path), MaxPath)
	}
	if path[0] == '/' {
		return nil, fmt.Errorf("path %.200q must be relative to the workspace, without a leading slash", path)
	}
	parts := strings.Split(path, "/")
	if len(parts) > MaxDepth {
		return nil, fmt.Errorf("path %.200q is more than %d directories deep", path, MaxDepth)
	}
	for _, p := range parts {
		if err := CheckName(p); err != nil {
			return nil, fmt.Errorf("path %.200q: %w", path, err)
		}
	}
	return parts, nil
}

// Join is the path of name in dir.
func Join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
