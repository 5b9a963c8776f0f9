package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

var sizeBenchmarks = []Benchmark{{"binary_size", "the programs as `make build` makes them", binarySizes}}

func binarySizes(_ context.Context, e *Env) ([]Result, error) {
	var out []Result
	for _, name := range []string{"weft", "weftd", "weft-init"} {
		st, err := os.Stat(filepath.Join(e.root, "bin", name))
		if err != nil {
			return nil, fmt.Errorf("%w; run make build", err)
		}
		out = append(out, newResult("size_"+name, "MB", []float64{float64(st.Size()) / 1e6}))
	}
	return out, nil
}
