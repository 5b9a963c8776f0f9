// Package memory holds the wire structs of the memory service: what agents remember, in items that are
// superseded and never overwritten. Whose memory it is (tenant, workspace, principal) comes from the
// subject of a request, never from its body. Times are UTC with microseconds. All text is valid UTF-8.
package memory

import (
	"encoding/json"
	"time"
)

// Operations for principals, on the req plane.
const (
	OpAdd       = "add"
	OpSupersede = "supersede"
	OpGet       = "get"
	OpSearch    = "search"
	OpList      = "list"
	OpForget    = "forget"
	OpHistory   = "history"
	OpContext   = "context"
)

// Operations for services, on the int plane.
const (
	OpDeleteWorkspace = "delete-workspace"
	OpDeleteTenant    = "delete-tenant"
)

// Limits of the contract. A service may be configured to allow less.
const (
	MaxText          = 64 << 10 // bytes of an item's text, and of a query
	MaxData          = 32 << 10 // bytes of an item's data as compact JSON
	MaxKey           = 256      // bytes of a key
	MaxTags          = 32       // tags of an item
	MaxTag           = 64       // bytes of a tag
	MaxLimit         = 100      // items of one page
	MaxSearchDepth   = 1000     // best hits of one search that can be paged through
	MaxContextTokens = 200_000  // budget of one context
)

// Kind says what sort of memory an item is.
type Kind string

// The kinds.
const (
	Episodic   Kind = "episodic"   // what happened: a turn, an observation, a result
	Semantic   Kind = "semantic"   // what is so: a fact, usually under a key
	Procedural Kind = "procedural" // how something is done
)

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool { return k == Episodic || k == Semantic || k == Procedural }

// Item is one thing remembered. It never changes but in two ways: when it is superseded it gets
// ValidTo and SupersededBy, and when it is forgotten it is gone.
type Item struct {
	ID        string `json:"id"`
	Workspace string `json:"workspace"`
	Kind      Kind   `json:"kind"`
	// Key is the stable name of a fact. At most one valid item of a workspace has it.
	Key  string   `json:"key,omitempty"`
	Text string   `json:"text"`
	Tags []string `json:"tags,omitempty"` // sorted, each once
	// Data is a JSON object for programs; search does not look into it.
	Data json.RawMessage `json:"data,omitempty"`
	// Pinned items come first in every context.
	Pinned bool   `json:"pinned,omitempty"`
	Source Source `json:"source"`
	// Version counts the items that succeeded one another under a key, or from one keyless item, from 1.
	Version   int       `json:"version"`
	CreatedAt time.Time `json:"created_at"` // when the service took it
	ValidFrom time.Time `json:"valid_from"` // since when it is so
	// ValidTo is when it ceased to be so, exclusive; null while it is valid.
	ValidTo      *time.Time `json:"valid_to,omitempty"`
	Supersedes   string     `json:"supersedes,omitempty"`    // id of the item before it
	SupersededBy string     `json:"superseded_by,omitempty"` // id of the item after it
}

// Source is where an item comes from. The principal is the caller's, set by the service.
type Source struct {
	Principal string `json:"principal"`
	Task      string `json:"task,omitempty"`    // task id
	Attempt   int    `json:"attempt,omitempty"` // of the task, from 1
}

// AddRequest remembers something new. With a SubmissionKey it may be repeated: the same key with the
// same content gives the item of the first time, with other content a conflict. A Key that has a
// valid item is a conflict too: supersede it.
type AddRequest struct {
	SubmissionKey string          `json:"submission_key,omitempty"` // at most 256 printable ASCII characters, one caller's own
	Kind          Kind            `json:"kind,omitempty"`           // semantic if empty
	Key           string          `json:"key,omitempty"`
	Text          string          `json:"text"`
	Tags          []string        `json:"tags,omitempty"`
	Data          json.RawMessage `json:"data,omitempty"`
	Pinned        bool            `json:"pinned,omitempty"`
	ValidFrom     *time.Time      `json:"valid_from,omitempty"` // now if null, never later
	Task          string          `json:"task,omitempty"`       // task id
	Attempt       int             `json:"attempt,omitempty"`
}

// AddReply is the item as it was stored.
type AddReply struct {
	Item      Item `json:"item"`
	Duplicate bool `json:"duplicate,omitempty"` // an earlier request with this submission key made it
}

// SupersedeRequest puts a new item in the place of the valid one that ID or Key names. The new item
// keeps the key and the kind, and its tags and pin where these are null; data is not kept.
type SupersedeRequest struct {
	SubmissionKey string `json:"submission_key,omitempty"` // as in AddRequest
	ID            string `json:"id,omitempty"`             // either this
	Key           string `json:"key,omitempty"`            // or this
	// ExpectedVersion, unless null, must be the version of the valid item; 0 means that there is none.
	ExpectedVersion *int `json:"expected_version,omitempty"`
	// Upsert adds the item when Key has no valid one. Kind counts only then, semantic if empty.
	Upsert    bool            `json:"upsert,omitempty"`
	Kind      Kind            `json:"kind,omitempty"`
	Text      string          `json:"text"`
	Tags      []string        `json:"tags,omitzero"` // null keeps them, an empty list removes them
	Data      json.RawMessage `json:"data,omitempty"`
	Pinned    *bool           `json:"pinned,omitempty"`
	ValidFrom *time.Time      `json:"valid_from,omitempty"` // now if null, never later, and after the old item's
	Task      string          `json:"task,omitempty"`
	Attempt   int             `json:"attempt,omitempty"`
}

// SupersedeReply is the new item, and the old one's id unless there was none.
type SupersedeReply struct {
	Item       Item   `json:"item"`
	Superseded string `json:"superseded,omitempty"`
	Duplicate  bool   `json:"duplicate,omitempty"`
}

// GetRequest asks for one item: by ID whether valid or not, or the one that is, or at AsOf was, valid under Key.
type GetRequest struct {
	ID   string     `json:"id,omitempty"`
	Key  string     `json:"key,omitempty"`
	AsOf *time.Time `json:"as_of,omitempty"`
}

// GetReply is the item.
type GetReply struct {
	Item Item `json:"item"`
}

// SearchRequest asks for the items that match Query best among those valid now, or at AsOf. Words are
// compared by their stem; any word may match.
type SearchRequest struct {
	Query  string     `json:"query"`
	Kinds  []Kind     `json:"kinds,omitempty"` // any of these
	Tags   []string   `json:"tags,omitempty"`  // all of these
	AsOf   *time.Time `json:"as_of,omitempty"`
	Limit  int        `json:"limit,omitempty"`  // 1 to 100, 10 if 0
	Cursor string     `json:"cursor,omitempty"` // next_cursor of the page before, with the same request
}

// SearchReply is one page, the best hit first. A page may be shorter than the limit; only an empty
// NextCursor ends it.
type SearchReply struct {
	Hits       []Hit  `json:"hits"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// Hit is an item and why it was found.
type Hit struct {
	Item    Item    `json:"item"`
	Score   float64 `json:"score"`   // BM25 with recency; higher is better, comparable within one reply only
	Snippet string  `json:"snippet"` // some 200 bytes of the text around the words that matched
}

// Filter picks items. What is empty does not restrict; all that is given must hold.
type Filter struct {
	Kinds         []Kind     `json:"kinds,omitempty"` // any of these
	Tags          []string   `json:"tags,omitempty"`  // all of these
	Key           string     `json:"key,omitempty"`
	KeyPrefix     string     `json:"key_prefix,omitempty"`
	Principal     string     `json:"principal,omitempty"`
	Task          string     `json:"task,omitempty"`
	Pinned        *bool      `json:"pinned,omitempty"`
	CreatedFrom   *time.Time `json:"created_from,omitempty"`   // inclusive
	CreatedBefore *time.Time `json:"created_before,omitempty"` // exclusive
}

// ListRequest pages through items, the newest first: those valid now, or at AsOf, or all versions.
type ListRequest struct {
	Filter      Filter     `json:"filter,omitzero"`
	AsOf        *time.Time `json:"as_of,omitempty"`
	AllVersions bool       `json:"all_versions,omitempty"`
	Limit       int        `json:"limit,omitempty"` // 1 to 100, 50 if 0
	Cursor      string     `json:"cursor,omitempty"`
}

// ListReply is one page. A page may be shorter than the limit; only an empty NextCursor ends it.
type ListReply struct {
	Items      []Item `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// ForgetRequest deletes for good: one item by ID, or every version of every item that Filter picks.
// An empty filter is refused unless All says that everything is meant.
type ForgetRequest struct {
	ID     string  `json:"id,omitempty"`
	Filter *Filter `json:"filter,omitempty"`
	All    bool    `json:"all,omitempty"`
}

// ForgetReply counts what is gone. A tombstone stays of each: its id, kind and times, no word of it.
type ForgetReply struct {
	Count int `json:"count"`
}

// Tombstone is what stays of a forgotten item, so that a repeated submission does not bring it back.
type Tombstone struct {
	ID          string    `json:"id"`
	Kind        Kind      `json:"kind"`
	CreatedAt   time.Time `json:"created_at"`
	ForgottenAt time.Time `json:"forgotten_at"`
	ForgottenBy string    `json:"forgotten_by"` // principal
}

// HistoryRequest asks for every version of a key that is not forgotten, the newest first.
type HistoryRequest struct {
	Key    string `json:"key"`
	Limit  int    `json:"limit,omitempty"` // 1 to 100, 50 if 0
	Cursor string `json:"cursor,omitempty"`
}

// HistoryReply is one page, as in ListReply.
type HistoryReply struct {
	Items      []Item `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// ContextRequest asks for what an agent should have before its eyes: pinned items, then recent ones,
// then those that Query recalls, within Budget.
type ContextRequest struct {
	Query  string   `json:"query,omitempty"`  // the task's text, or the agent's question; empty recalls nothing
	Budget int      `json:"budget,omitempty"` // tokens, 1 to 200,000; 4,000 if 0
	Kinds  []Kind   `json:"kinds,omitempty"`  // of recent and recalled items: any of these
	Tags   []string `json:"tags,omitempty"`   // of recent and recalled items: all of these
}

// Section is the part of a context that a block belongs to.
type Section string

// The sections, in the order in which a context has them.
const (
	SectionPinned   Section = "pinned"
	SectionRecent   Section = "recent"
	SectionRecalled Section = "recalled"
)

// ContextReply is the context. Pinned blocks take at most half of the budget, recent ones a quarter
// (all that is left if there is no query), recalled ones what then remains.
type ContextReply struct {
	Blocks  []Block `json:"blocks"`
	Tokens  int     `json:"tokens"`            // estimated, of all blocks; never over the budget
	Budget  int     `json:"budget"`            // tokens
	Omitted int     `json:"omitted,omitempty"` // items that were considered and had no room
}

// Block is one item's text in a context.
type Block struct {
	Section   Section   `json:"section"`
	ID        string    `json:"id"` // of the item
	Kind      Kind      `json:"kind"`
	Key       string    `json:"key,omitempty"`
	Text      string    `json:"text"`
	Tokens    int       `json:"tokens"`              // estimated: 4 ASCII bytes, or one other character, a token
	Truncated bool      `json:"truncated,omitempty"` // the text was cut to fit
	ValidFrom time.Time `json:"valid_from"`
}

// DeleteWorkspaceRequest removes everything of a workspace, tombstones too. Repeating it does no harm.
type DeleteWorkspaceRequest struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace"`
}

// DeleteTenantRequest removes everything of a tenant. Repeating it does no harm.
type DeleteTenantRequest struct {
	Tenant string `json:"tenant"`
}

// DeleteReply has nothing to say.
type DeleteReply struct{}
