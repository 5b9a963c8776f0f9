package runtime

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Operations on a sandbox's files, on the sbx plane. All see them from inside, with the payload's permissions.
// Those marked open a byte stream: file-read, file-write, file-append, file-tar-out and file-tar-in with a file's
// or a tar's bytes on the channel data, the others with a line of JSON there for each thing that they tell.
const (
	OpFileStat    = "file-stat"
	OpFileList    = "file-list"    // one page
	OpFileRead    = "file-read"    // stream; result FileEntry
	OpFileWrite   = "file-write"   // stream; result FileEntry
	OpFileAppend  = "file-append"  // stream; result FileEntry
	OpFileMkdir   = "file-mkdir"   //
	OpFileMove    = "file-move"    // stream; result FileCount
	OpFileCopy    = "file-copy"    // stream; result FileCount
	OpFileRemove  = "file-remove"  // stream; result FileCount
	OpFileChmod   = "file-chmod"   // stream; result FileCount
	OpFileTouch   = "file-touch"   //
	OpFileGlob    = "file-glob"    // stream of FileEntry; result FileCount
	OpFileSearch  = "file-search"  // stream of FileMatch; result FileCount
	OpFileReplace = "file-replace" // stream of FileReplaced; result FileCount
	OpFileWatch   = "file-watch"   // stream of FileChange, until the caller leaves; result FileCount
	OpFileTarOut  = "file-tar-out" // stream; result FileCount
	OpFileTarIn   = "file-tar-in"  // stream; result FileCount
)

// FilePath is a path of any bytes but NUL. One that is not UTF-8 comes in PathB64, and Path only shows it.
type FilePath struct {
	Path    string `json:"path"`
	PathB64 []byte `json:"path_b64,omitempty"`
}

// PathOf makes a FilePath of a path as the file system has it.
func PathOf(p string) FilePath {
	if utf8.ValidString(p) {
		return FilePath{Path: p}
	}
	return FilePath{Path: strings.ToValidUTF8(p, "\uFFFD"), PathB64: []byte(p)}
}

// Raw is the path as the file system has it.
func (p FilePath) Raw() string {
	if len(p.PathB64) > 0 {
		return string(p.PathB64)
	}
	return p.Path
}

// FileStat asks for one file. A link at the end of the path is followed unless NoFollow.
type FileStat struct {
	FilePath
	NoFollow bool `json:"no_follow,omitempty"`
}

// FileEntry is one file. In a list, FilePath is relative to what was listed.
type FileEntry struct {
	FilePath
	Type      string    `json:"type"` // file, dir, symlink, other
	Size      int64     `json:"size"`
	Mode      uint32    `json:"mode"` // permission bits, setuid, setgid, sticky
	UID       uint32    `json:"uid"`
	GID       uint32    `json:"gid"`
	ModTime   time.Time `json:"mod_time"`
	Target    string    `json:"target,omitempty"` // of a symlink
	TargetB64 []byte    `json:"target_b64,omitempty"`
}

// FileList asks for a page of a directory, or to Depth levels of a tree, in the order of the paths.
type FileList struct {
	FilePath
	Depth int       `json:"depth,omitempty"` // 1, the default, is the directory's own entries; -1 is without end
	Glob  string    `json:"glob,omitempty"`  // of the relative path; ** matches directories, {a,b} either
	Limit int       `json:"limit,omitempty"` // at most and by default 1000
	After *FilePath `json:"after,omitempty"` // the last entry of the page before
}

// FileListReply is a page. More says that another one follows, after the last entry.
type FileListReply struct {
	Entries []FileEntry `json:"entries"`
	More    bool        `json:"more,omitempty"`
}

// FileRead asks for a part of a regular file.
type FileRead struct {
	FilePath
	Offset int64  `json:"offset,omitempty"`
	Length *int64 `json:"length,omitempty"` // nil: to the end
}

// FileWrite replaces a file atomically, or with file-append adds to it.
type FileWrite struct {
	FilePath
	Mode    uint32 `json:"mode,omitempty"`    // 0: as the file has it, 0644 for a new one
	Parents bool   `json:"parents,omitempty"` // make missing directories above
	Keep    bool   `json:"keep,omitempty"`    // a file that is there is a conflict
}

// FileMkdir makes a directory; with Parents one that is there is no error.
type FileMkdir struct {
	FilePath
	Mode    uint32 `json:"mode,omitempty"` // 0: 0755
	Parents bool   `json:"parents,omitempty"`
}

// FileMove moves or copies a file or a tree.
type FileMove struct {
	From    FilePath `json:"from"`
	To      FilePath `json:"to"`
	Parents bool     `json:"parents,omitempty"`
	Keep    bool     `json:"keep,omitempty"` // what is at To is a conflict
}

// FileRemove removes a file or an empty directory, with Recursive a tree.
type FileRemove struct {
	FilePath
	Recursive bool `json:"recursive,omitempty"`
}

// FileChmod sets permission bits.
type FileChmod struct {
	FilePath
	Mode      uint32 `json:"mode"`
	Recursive bool   `json:"recursive,omitempty"`
}

// FileTouch makes a file if it is missing and sets its time of change.
type FileTouch struct {
	FilePath
	ModTime *time.Time `json:"mod_time,omitempty"` // nil: now
}

// FileGlob asks for the paths of a tree that match.
type FileGlob struct {
	FilePath
	Glob  string `json:"glob"`
	Limit int    `json:"limit,omitempty"` // at most and by default 10,000
}

// FileSearch asks for the lines of text files that match.
type FileSearch struct {
	FilePath          // a directory, or one file
	Pattern    string `json:"pattern"` // RE2
	Literal    bool   `json:"literal,omitempty"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Glob       string `json:"glob,omitempty"`
	Context    int    `json:"context,omitempty"`   // lines before and after, at most 20
	Limit      int    `json:"limit,omitempty"`     // matches: 1000 by default, at most 10,000
	MaxBytes   int64  `json:"max_bytes,omitempty"` // larger files are skipped: 16 MiB by default, at most 64 MiB
}

// FileMatch is one line that matches. Bytes in it that are no UTF-8 are shown as U+FFFD.
type FileMatch struct {
	FilePath
	Line   int      `json:"line"`   // from 1
	Column int      `json:"column"` // from 1, in bytes
	Text   string   `json:"text"`   // at most 1 KiB
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

// FileReplace replaces a pattern in the text files that Paths name, or that Glob takes. Each file is changed
// whole or not at all.
type FileReplace struct {
	FilePath
	Paths      []FilePath `json:"paths,omitempty"` // relative
	Glob       string     `json:"glob,omitempty"`
	Pattern    string     `json:"pattern"` // RE2
	Literal    bool       `json:"literal,omitempty"`
	IgnoreCase bool       `json:"ignore_case,omitempty"`
	With       string     `json:"with"` // $1 and ${name} are groups, $$ is $; as it stands with Literal
	DryRun     bool       `json:"dry_run,omitempty"`
	MaxBytes   int64      `json:"max_bytes,omitempty"` // 8 MiB by default and at most
}

// FileReplaced is what became of one file.
type FileReplaced struct {
	FilePath
	Count   int    `json:"count"`
	Code    string `json:"code,omitempty"` // why the file is as it was
	Message string `json:"message,omitempty"`
}

// FileWatch asks for what happens in a directory.
type FileWatch struct {
	FilePath
	Recursive bool  `json:"recursive,omitempty"`
	WindowMS  int64 `json:"window_ms,omitempty"` // in which changes of a path are put together: 50 by default, at most 1000
}

// FileChange is what happened to one path: ready (what happens from now on is told), create, modify, attrib, remove,
// move, overflow (changes were lost: look at the whole tree), gone (the directory itself; nothing more comes).
type FileChange struct {
	Kind string `json:"kind"`
	FilePath
	From *FilePath `json:"from,omitempty"` // move: where it was
	Dir  bool      `json:"dir,omitempty"`
}

// FileCount sums an operation up. Skipped were what could not be read, is too large, binary, or of a kind that the
// operation does not work on.
type FileCount struct {
	Files     int64 `json:"files"`
	Dirs      int64 `json:"dirs"`
	Links     int64 `json:"links"`
	Bytes     int64 `json:"bytes"`
	Matches   int64 `json:"matches"`
	Skipped   int64 `json:"skipped"`
	Truncated bool  `json:"truncated,omitempty"` // there is more than the limit
}
