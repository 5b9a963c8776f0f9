package wire

import (
	"regexp"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/weftmesh/weft/pkg/fault"
)

// Operations on files and trees beyond those in messages.go. Each has As and Path; what else it reads is
// named beside it, fields of FileQuery after a slash. Those that stream answer with Reply.Tree, the last
// one with Count.
const (
	OpEntries Op = "entries" // / After, Limit, Depth, Glob: one page of a directory or tree
	OpAppend  Op = "append"  // Mode; data frames follow
	OpChmod   Op = "chmod"   // Mode, Deep
	OpTouch   Op = "touch"   // / Time
	OpMove    Op = "move"    // To / Keep
	OpCopy    Op = "copy"    // To / Keep
	OpGlob    Op = "glob"    // / Glob, Limit, Depth
	OpSearch  Op = "search"  // / Pattern, Literal, IgnoreCase, Glob, Context, Limit, MaxSize
	OpReplace Op = "replace" // / Paths, Glob, Pattern, Literal, IgnoreCase, With, DryRun, MaxSize
	OpWatch   Op = "watch"   // Deep / Window; until the node closes the stream
	OpTarOut  Op = "tar-out" // data frames follow
	OpTarIn   Op = "tar-in"  // data frames follow
)

// Limits of what a FileQuery asks for.
const (
	MaxPage       = 1000      // entries of one page
	MaxPageBytes  = 256 << 10 // of paths and targets in one page
	MaxMatches    = 10_000    // of one search or glob
	MaxContext    = 20        // lines before and after a match
	MaxSearchSize = 64 << 20  // of one file that is searched
	MaxEditSize   = 8 << 20   // of one file in which something is replaced, before and after
	MaxPattern    = 1 << 10
	MaxWith       = 64 << 10
	MaxPaths      = 1000
	MaxDepth      = 100_000
	MaxWindow     = time.Second
	// MaxRelative is the longest path, relative to the tree's top, that is ever told.
	MaxRelative = 64 << 10
)

// FileQuery says what an operation on a tree looks for, and how far.
type FileQuery struct {
	NoFollow   bool          `json:"no_follow,omitempty"` // a link at the path's end is meant itself
	Parents    bool          `json:"parents,omitempty"`   // missing directories above are made
	Keep       bool          `json:"keep,omitempty"`      // what is at the target is not replaced: conflict
	After      Text          `json:"after,omitempty"`     // relative path of the last entry of the page before
	Limit      int           `json:"limit,omitempty"`
	Depth      int           `json:"depth,omitempty"` // levels below the top; 1 is the top's own entries
	Glob       string        `json:"glob,omitempty"`  // of the path relative to the top, with ** and {a,b}
	Pattern    string        `json:"pattern,omitempty"`
	Literal    bool          `json:"literal,omitempty"`
	IgnoreCase bool          `json:"ignore_case,omitempty"`
	Context    int           `json:"context,omitempty"`
	MaxSize    int64         `json:"max_size,omitempty"` // larger files are skipped
	Paths      []Text        `json:"paths,omitempty"`    // relative to Path; empty: all that Glob takes
	With       string        `json:"with,omitempty"`     // $1 and ${name} are groups, unless Literal
	DryRun     bool          `json:"dry_run,omitempty"`
	Window     time.Duration `json:"window_ns,omitempty"` // in which events are put together
	Time       *time.Time    `json:"time,omitempty"`
}

// Tree is one message of an answer that has many.
type Tree struct {
	Entries  []FileInfo `json:"entries,omitempty"`
	More     bool       `json:"more,omitempty"` // OpEntries: another page follows, after the last entry
	Matches  []Match    `json:"matches,omitempty"`
	Replaced []Replaced `json:"replaced,omitempty"`
	Events   []Change   `json:"events,omitempty"`
	Count    *Count     `json:"count,omitempty"`
}

// Match is one line of one file that the pattern matches.
type Match struct {
	Path   Text   `json:"path"`
	Line   int    `json:"line"`   // from 1
	Column int    `json:"column"` // from 1, in bytes
	Text   Text   `json:"text"`   // the line, at most 1 KiB of it
	Before []Text `json:"before,omitempty"`
	After  []Text `json:"after,omitempty"`
}

// Replaced is what became of one file.
type Replaced struct {
	Path  Text   `json:"path"`
	Count int    `json:"count"`
	Error *Error `json:"error,omitempty"` // the file is as it was
}

// Change is what happened to one path while it was watched.
type Change struct {
	Kind ChangeKind `json:"kind"`
	Path Text       `json:"path,omitempty"` // relative to what is watched; empty is that itself
	From Text       `json:"from,omitempty"` // ChangeMove: where it was
	Dir  bool       `json:"dir,omitempty"`
}

// ChangeKind is the kind of a Change.
type ChangeKind string

// Kinds of changes.
const (
	ChangeReady    ChangeKind = "ready" // what happens from now on is told
	ChangeCreate   ChangeKind = "create"
	ChangeModify   ChangeKind = "modify"
	ChangeAttrib   ChangeKind = "attrib"
	ChangeRemove   ChangeKind = "remove"
	ChangeMove     ChangeKind = "move"
	ChangeOverflow ChangeKind = "overflow" // some changes were lost: look at the whole tree
	ChangeGone     ChangeKind = "gone"     // what was watched was removed or moved: nothing more comes
)

// Count sums an operation up.
type Count struct {
	Files     int64 `json:"files,omitempty"`
	Dirs      int64 `json:"dirs,omitempty"`
	Links     int64 `json:"links,omitempty"`
	Bytes     int64 `json:"bytes,omitempty"`
	Matches   int64 `json:"matches,omitempty"`
	Skipped   int64 `json:"skipped,omitempty"` // not readable, too large, binary, or no file of a kind that this works on
	Truncated bool  `json:"truncated,omitempty"`
}

// Check refuses a query that can never be answered, and fills in what was left empty.
func (q *FileQuery) Check() error {
	invalid := func(format string, args ...any) error { return fault.New(fault.Invalid, format, args...) }
	switch {
	case q.Limit < 0 || q.Depth < 0 || q.MaxSize < 0 || q.Context < 0 || q.Window < 0:
		return invalid("limit, depth, max_size, context and window must not be negative")
	case q.Context > MaxContext:
		return invalid("%d lines of context: at most %d", q.Context, MaxContext)
	case len(q.Glob) > MaxPattern || len(q.Pattern) > MaxPattern || len(q.With) > MaxWith:
		return invalid("a pattern has at most %d bytes, a replacement %d", MaxPattern, MaxWith)
	case strings.Count(q.Glob, "{") > 8:
		return invalid("a glob has at most 8 alternatives in braces")
	case len(q.Paths) > MaxPaths:
		return invalid("%d paths: at most %d", len(q.Paths), MaxPaths)
	case len(q.After) > MaxRelative:
		return invalid("the path to go on after has more than %d bytes", MaxRelative)
	case q.Window > MaxWindow:
		return invalid("events are put together for at most %s", MaxWindow)
	}
	if q.Glob != "" && !doublestar.ValidatePattern(q.Glob) {
		return invalid("glob %.80q is malformed", q.Glob)
	}
	if q.Depth == 0 || q.Depth > MaxDepth {
		q.Depth = MaxDepth
	}
	return nil
}

// Regexp is what Pattern means.
func (q *FileQuery) Regexp() (*regexp.Regexp, error) {
	p := q.Pattern
	if p == "" {
		return nil, fault.New(fault.Invalid, "the pattern is empty")
	}
	if q.Literal {
		p = regexp.QuoteMeta(p)
	}
	if q.IgnoreCase {
		p = "(?i)" + p
	}
	re, err := regexp.Compile("(?m)" + p)
	if err != nil {
		return nil, fault.New(fault.Invalid, "pattern %.80q: %v", q.Pattern, err)
	}
	return re, nil
}

// CheckRelative refuses a path that is not one below a tree's top.
func CheckRelative(what string, p Text) error {
	s := string(p)
	bad := s == "" || len(s) > MaxRelative || s[0] == '/' || strings.IndexByte(s, 0) >= 0
	for part := range strings.SplitSeq(s, "/") {
		bad = bad || part == ".." || part == "." || part == "" || len(part) > 255
	}
	if bad {
		return fault.New(fault.Invalid, "%s %.80q must be a relative path without . and ..", what, s)
	}
	return nil
}
