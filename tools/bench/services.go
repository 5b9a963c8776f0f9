package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/weftmesh/weft/services/memory"
	"github.com/weftmesh/weft/services/memory/corpus"
)

// serviceBenchmarks need one service's own parts.
var serviceBenchmarks = []Benchmark{
	{"memory_search", "the best ten of 100,000 items by full text, SQLite", memorySearch},
}

func memorySearch(ctx context.Context, e *Env) ([]Result, error) {
	store, err := memory.Open(ctx, "sqlite:"+filepath.Join(e.dir, "memory"), 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close() }()
	if err := corpus.Fill(ctx, store, "bench", "demo", 100_000); err != nil {
		return nil, err
	}
	ds, err := corpus.Search(ctx, store, "bench", "demo", 1000)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(ds))
	for i, d := range ds {
		out[i] = float64(d) / float64(time.Millisecond)
	}
	return []Result{newResult("memory_search", "ms", out).aim("p95 ≤ 20")}, nil
}
