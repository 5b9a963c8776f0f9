package containerd

import (
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
)

// Snapshots of snapshots end before the kernel refuses to mount them, and the error says why.
func TestAnImageHasNotTooManyLayers(t *testing.T) {
	m := ocispec.Manifest{Layers: make([]ocispec.Descriptor, maxLayers)}
	_, err := addManifest(t.Context(), nil, m, ocispec.Descriptor{})
	require.True(t, fault.Is(err, fault.Exhausted), "%v", err)
}
