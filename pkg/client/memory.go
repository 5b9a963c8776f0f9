package client

import (
	"context"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
)

// AddMemory remembers something new.
func (c *Client) AddMemory(ctx context.Context, r memory.AddRequest) (memory.AddReply, error) {
	return ask[memory.AddReply](ctx, c, schemas.Memory, memory.OpAdd, r)
}

// SupersedeMemory puts a new item in the place of a valid one, which stays as history.
func (c *Client) SupersedeMemory(ctx context.Context, r memory.SupersedeRequest) (memory.SupersedeReply, error) {
	return ask[memory.SupersedeReply](ctx, c, schemas.Memory, memory.OpSupersede, r)
}

// Memory reads one item.
func (c *Client) Memory(ctx context.Context, r memory.GetRequest) (memory.Item, error) {
	rep, err := ask[memory.GetReply](ctx, c, schemas.Memory, memory.OpGet, r)
	return rep.Item, err
}

// SearchMemory gives one page of the items that match best.
func (c *Client) SearchMemory(ctx context.Context, r memory.SearchRequest) (memory.SearchReply, error) {
	return ask[memory.SearchReply](ctx, c, schemas.Memory, memory.OpSearch, r)
}

// Memories gives up to limit items, the newest first; 0 is all.
func (c *Client) Memories(ctx context.Context, r memory.ListRequest, limit int) ([]memory.Item, error) {
	return all(limit, func(n int, cursor string) ([]memory.Item, string, error) {
		r.Limit, r.Cursor = min(n, memory.MaxLimit), cursor
		p, err := ask[memory.ListReply](ctx, c, schemas.Memory, memory.OpList, r)
		return p.Items, p.NextCursor, err
	})
}

// MemoryHistory gives up to limit versions of a key, the newest first; 0 is all.
func (c *Client) MemoryHistory(ctx context.Context, key string, limit int) ([]memory.Item, error) {
	return all(limit, func(n int, cursor string) ([]memory.Item, string, error) {
		p, err := ask[memory.HistoryReply](ctx, c, schemas.Memory, memory.OpHistory,
			memory.HistoryRequest{Key: key, Limit: min(n, memory.MaxLimit), Cursor: cursor})
		return p.Items, p.NextCursor, err
	})
}

// ForgetMemory deletes for good and says how many items are gone.
func (c *Client) ForgetMemory(ctx context.Context, r memory.ForgetRequest) (int, error) {
	rep, err := ask[memory.ForgetReply](ctx, c, schemas.Memory, memory.OpForget, r)
	return rep.Count, err
}

// MemoryContext gives what an agent should have before its eyes, within a budget of tokens.
func (c *Client) MemoryContext(ctx context.Context, r memory.ContextRequest) (memory.ContextReply, error) {
	return ask[memory.ContextReply](ctx, c, schemas.Memory, memory.OpContext, r)
}
