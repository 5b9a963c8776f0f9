package toolchain

import (
	"fmt"
	"regexp"
	"strconv"
)

// Version is a release number of an external program.
type Version struct {
	Major, Minor, Patch int
	Pre                 string // rc.1, beta.0; empty for a release
}

var versionPattern = regexp.MustCompile(`\b[vV]?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?:-((?:alpha|beta|rc)[.0-9]*))?`)

// ParseVersion returns the first release number in what a program printed.
// What a distribution appends (+ds1, ~deb12u1) is ignored.
func ParseVersion(output string) (Version, bool) {
	m := versionPattern.FindStringSubmatch(output)
	if m == nil {
		return Version{}, false
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // at most six digits
	}
	return Version{n[0], n[1], n[2], m[4]}, true
}

// Less reports whether v came before w. Pre-releases of one number count as equal to each other.
func (v Version) Less(w Version) bool {
	switch {
	case v.Major != w.Major:
		return v.Major < w.Major
	case v.Minor != w.Minor:
		return v.Minor < w.Minor
	case v.Patch != w.Patch:
		return v.Patch < w.Patch
	}
	return v.Pre != "" && w.Pre == ""
}

func (v Version) String() string {
	s := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	if v.Pre != "" {
		s += "-" + v.Pre
	}
	return s
}
