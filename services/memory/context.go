package memory

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/lexical"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

const (
	usualBudget = 4000 // tokens
	// candidates of each section. Pinned and recent items are meant to be few.
	pinnedItems   = 100
	recentItems   = 50
	recalledItems = 50
	// leastPiece is the fewest tokens of a text that are worth showing if the whole does not fit.
	leastPiece = 32
)

// Context puts together what an agent should have before its eyes, within a budget: pinned items, the newest
// first; then recent ones, in the order in which they came; then those that the query recalls, the best first. No
// item is in it twice. The same memory and request give the same context. Errors: invalid.
func (s *Service) Context(ctx context.Context, by mesh.Caller, req memory.ContextRequest) (memory.ContextReply, error) {
	sc, err := scope(by)
	if err != nil {
		return memory.ContextReply{}, err
	}
	if req.Budget == 0 {
		req.Budget = usualBudget
	}
	if req.Budget < 0 || req.Budget > memory.MaxContextTokens {
		return memory.ContextReply{}, invalid("budget %d must be 1 to %d tokens", req.Budget, memory.MaxContextTokens)
	}
	q, err := s.query(memory.SearchRequest{Query: req.Query, Kinds: req.Kinds, Tags: req.Tags, Limit: recalledItems})
	if err != nil {
		return memory.ContextReply{}, err
	}
	pinned, recent, recalled, err := s.candidates(ctx, sc, q)
	if err != nil {
		return memory.ContextReply{}, s.failure(err, "")
	}
	a := assembly{reply: memory.ContextReply{Blocks: []memory.Block{}, Budget: req.Budget}, seen: map[string]bool{}}
	a.fill(memory.SectionPinned, pinned, req.Budget/2)
	share := req.Budget / 4
	if len(recalled) == 0 {
		share = req.Budget
	}
	from := len(a.reply.Blocks)
	a.fill(memory.SectionRecent, recent, min(share, req.Budget-a.reply.Tokens))
	slices.Reverse(a.reply.Blocks[from:])
	a.fill(memory.SectionRecalled, recalled, req.Budget-a.reply.Tokens)
	return a.reply, nil
}

// candidates gives the items of each section, the most wanted first.
func (s *Service) candidates(ctx context.Context, sc store.Scope, q store.Query) (pinned, recent, recalled []memory.Item, err error) {
	yes := true
	if pinned, err = s.store.List(ctx, sc, store.Filter{Pinned: &yes}, store.Position{}, pinnedItems); err != nil {
		return nil, nil, nil, err
	}
	if recent, err = s.store.List(ctx, sc, store.Filter{Kinds: q.Kinds, Tags: q.Tags}, store.Position{}, recentItems); err != nil {
		return nil, nil, nil, err
	}
	if len(q.Terms) == 0 {
		return pinned, recent, nil, nil
	}
	hits, err := s.store.Search(ctx, sc, q)
	for _, h := range hits {
		recalled = append(recalled, h.Item)
	}
	return pinned, recent, recalled, err
}

// assembly is a context being put together.
type assembly struct {
	reply memory.ContextReply
	seen  map[string]bool // ids of the items in it
	bytes int             // of all blocks, at most pageBytes
}

// fill adds those of items that fit into budget tokens. The first that does not is cut to fit, if a piece
// worth reading has room; of the others those that fit are still taken.
func (a *assembly) fill(section memory.Section, items []memory.Item, budget int) {
	cut := false
	for _, it := range items {
		if a.seen[it.ID] {
			continue
		}
		b := memory.Block{
			Section: section, ID: it.ID, Kind: it.Kind, Key: it.Key, Text: it.Text, Tokens: Tokens(it.Text), ValidFrom: it.ValidFrom,
		}
		if b.Tokens > budget && budget >= leastPiece && !cut {
			b.Text, b.Truncated, cut = firstTokens(it.Text, budget), true, true
			b.Tokens = Tokens(b.Text)
		}
		if size := len(b.Text); b.Tokens > budget || a.bytes+size > pageBytes {
			a.reply.Omitted++
			continue
		}
		a.seen[it.ID] = true
		a.bytes += len(b.Text)
		budget -= b.Tokens
		a.reply.Tokens += b.Tokens
		a.reply.Blocks = append(a.reply.Blocks, b)
	}
}

// Tokens estimates how many tokens a model makes of text: one for four ASCII bytes, one for each other
// character. Models differ; for English this is close, and for other scripts rather too many.
func Tokens(text string) int {
	ascii, other := 0, 0
	for _, r := range text {
		if r < utf8.RuneSelf {
			ascii++
		} else {
			other++
		}
	}
	return (ascii+3)/4 + other
}

// firstTokens gives the beginning of text that is estimated at no more than n tokens, with … at its end.
func firstTokens(text string, n int) string {
	quarters := 0
	for i, r := range text {
		if r < utf8.RuneSelf {
			quarters++
		} else {
			quarters += 4
		}
		if quarters > (n-1)*4 { // one is for the …
			return lexical.Shorten(text, i) + "…"
		}
	}
	return text
}
