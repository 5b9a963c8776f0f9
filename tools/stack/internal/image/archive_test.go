package image

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
)

// archive makes the image of a recipe from a small tree.
func archive(t *testing.T, r Recipe) string {
	t.Helper()
	dir := t.TempDir()
	tree, out := filepath.Join(dir, "rootfs.tar"), filepath.Join(dir, "image.tar")
	require.NoError(t, os.WriteFile(tree, rootfs(t, r, extracted(t, nil)), 0o644))
	require.NoError(t, Archive(r, tree, "amd64", "bookworm", dir, out))
	return out
}

// open unpacks an archive into a directory and reads it as an OCI layout.
func open(t *testing.T, archive string) layout.Path {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	for reader := tar.NewReader(f); ; {
		h, err := reader.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(h.Name), h.Name)
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, 0o644))
	}
	store, err := layout.FromPath(dir)
	require.NoError(t, err)
	return store
}

func TestArchiveIsAValidImage(t *testing.T) {
	index, err := open(t, archive(t, smallRecipe)).ImageIndex()
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	entry := manifest.Manifests[0]
	require.Equal(t, "weft.local/template/small:1", entry.Annotations["io.containerd.image.name"])
	require.Equal(t, "amd64", entry.Platform.Architecture)

	img, err := index.Image(entry.Digest)
	require.NoError(t, err)
	layers, err := img.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	requireSound(t, layers[0])
	media, err := layers[0].MediaType()
	require.NoError(t, err)
	require.Equal(t, types.OCILayerZStd, media)

	config, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "1000:1000", config.Config.User)
	require.Equal(t, "/workspace", config.Config.WorkingDir)
	require.Equal(t, []string{"A=1", "PATH=/usr/bin"}, config.Config.Env)
	require.Equal(t, "small", config.Config.Labels["dev.weft.template"])
	require.Equal(t, epoch, config.Created.Time)
}

// requireSound checks that a layer is what its digests say, packed and unpacked. The library's own
// validation knows gzip only.
func requireSound(t *testing.T, layer v1.Layer) {
	t.Helper()
	packed, err := layer.Compressed()
	require.NoError(t, err)
	digest, size, err := v1.SHA256(packed)
	require.NoError(t, err)
	require.NoError(t, packed.Close())
	wantDigest, err := layer.Digest()
	require.NoError(t, err)
	wantSize, err := layer.Size()
	require.NoError(t, err)
	require.Equal(t, wantDigest, digest)
	require.Equal(t, wantSize, size)

	tree, err := layer.Uncompressed()
	require.NoError(t, err)
	digest, _, err = v1.SHA256(tree)
	require.NoError(t, err)
	require.NoError(t, tree.Close())
	wantDigest, err = layer.DiffID()
	require.NoError(t, err)
	require.Equal(t, wantDigest, digest)
}

func TestArchiveFollowsFromTheContentAlone(t *testing.T) {
	first, err := os.ReadFile(archive(t, smallRecipe))
	require.NoError(t, err)
	second, err := os.ReadFile(archive(t, smallRecipe))
	require.NoError(t, err)
	require.Equal(t, first, second)
}
