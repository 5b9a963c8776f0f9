package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGeneratedFilesAreFresh fails when the contract was changed without `make generate`.
func TestGeneratedFilesAreFresh(t *testing.T) {
	root, err := findRoot()
	require.NoError(t, err)
	files, err := Generate(filepath.Join(root, "schemas"))
	require.NoError(t, err)
	want := map[string]bool{}
	for _, f := range files {
		want[f.Name] = true
		have, err := os.ReadFile(filepath.Join(root, "schemas", f.Name))
		require.NoError(t, err, "run make generate")
		require.Equal(t, string(f.Body), string(have), "%s is stale: run make generate", f.Name)
		if filepath.Ext(f.Name) == ".json" {
			require.True(t, json.Valid(have), f.Name)
		}
	}
	there, err := filepath.Glob(filepath.Join(root, "schemas", "json", "*"))
	require.NoError(t, err)
	for _, p := range there {
		require.True(t, want["json/"+filepath.Base(p)], "%s belongs to no type: run make generate", p)
	}
}
