package containerd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// maxLayers of an image: the kernel takes a page of text for all directories of an overlay.
const maxLayers = 40

// labelSnapshot is on the images that snapshots made.
const labelSnapshot = "dev.weft/snapshot"

// Snapshot is an image that a snapshot made.
type Snapshot struct {
	Name      string
	Digest    string // of its manifest
	Layer     int64  // bytes of the layer that was added
	CreatedAt time.Time
}

// isSnapshot reports whether ref names an image that a snapshot made. No reference of a registry can: those have a tag.
func isSnapshot(ref string) bool { return strings.HasPrefix(ref, workspace.SnapshotPrefix) }

// AddLayer makes the image name: base with one more layer, which write gives as a tar in OCI's form. Nothing of the time at
// which it is made is in it: the same layer on the same base has the same digest. A name that is taken is a conflict.
func (e *Engine) AddLayer(ctx context.Context, base Image, name string, write func(io.Writer) error) (Snapshot, error) {
	ctx, cancel := call(ctx, imageTimeout)
	defer cancel()
	ctx, done, err := e.client.WithLease(ctx) // keeps the parts until the image does
	if err != nil {
		return Snapshot{}, err
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }()
	from, err := e.client.GetImage(ctx, base.Name)
	if err != nil {
		return Snapshot{}, fault.Wrap(err, codeOf(err), "image %s is no longer on this node", clip(base.Name))
	}
	store := e.client.ContentStore()
	manifest, err := images.Manifest(ctx, store, from.Target(), from.Platform())
	if err != nil {
		return Snapshot{}, fmt.Errorf("manifest of image %s: %w", base.Name, err)
	}
	layer, err := addLayerBlob(ctx, store, name, write)
	if err != nil {
		return Snapshot{}, diskFull(err)
	}
	target, err := addManifest(ctx, store, manifest, layer)
	if err != nil {
		return Snapshot{}, diskFull(err)
	}
	img, err := e.client.ImageService().Create(ctx, images.Image{Name: name, Target: target, Labels: map[string]string{labelSnapshot: fmt.Sprint(layer.Size)}})
	if errdefs.IsAlreadyExists(err) {
		return Snapshot{}, fault.New(fault.Conflict, "there is an image %s already", clip(name))
	}
	if err != nil {
		return Snapshot{}, err
	}
	if _, err := e.unpacked(ctx, client.NewImage(e.client, img)); err != nil {
		return Snapshot{}, joinRemoved(err, e.RemoveSnapshot(context.WithoutCancel(ctx), name))
	}
	return Snapshot{Name: name, Digest: target.Digest.String(), Layer: layer.Size, CreatedAt: img.CreatedAt}, nil
}

func joinRemoved(err, removed error) error {
	if removed != nil {
		return fmt.Errorf("%w (and what there is of it can't be removed: %v)", err, removed)
	}
	return err
}

// addLayerBlob stores a layer as it is written.
func addLayerBlob(ctx context.Context, store content.Store, ref string, write func(io.Writer) error) (ocispec.Descriptor, error) {
	none := ocispec.Descriptor{}
	w, err := content.OpenWriter(ctx, store, content.WithRef("weft-layer-"+ref))
	if err != nil {
		return none, err
	}
	defer w.Close()
	if err := w.Truncate(0); err != nil { // what an earlier try has left
		return none, err
	}
	if err := write(w); err != nil {
		return none, err
	}
	st, err := w.Status()
	if err != nil {
		return none, err
	}
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: w.Digest(), Size: st.Offset}
	if err := w.Commit(ctx, d.Size, d.Digest); err != nil && !errdefs.IsAlreadyExists(err) {
		return none, err
	}
	return d, nil
}

// addManifest stores the config and the manifest of an image with one more layer.
func addManifest(ctx context.Context, store content.Store, m ocispec.Manifest, layer ocispec.Descriptor) (ocispec.Descriptor, error) {
	none := ocispec.Descriptor{}
	if len(m.Layers) >= maxLayers {
		return none, fault.New(fault.Exhausted, "the image has %d layers already, of snapshots made of snapshots; make a template anew from its recipe", len(m.Layers))
	}
	b, err := content.ReadBlob(ctx, store, m.Config)
	if err != nil {
		return none, err
	}
	var config map[string]json.RawMessage // fields that are not OCI's stay
	var known ocispec.Image
	if err := json.Unmarshal(b, &config); err != nil {
		return none, err
	}
	if err := json.Unmarshal(b, &known); err != nil {
		return none, err
	}
	known.RootFS.DiffIDs = append(known.RootFS.DiffIDs, layer.Digest)
	known.History = append(known.History, ocispec.History{CreatedBy: "weft sandbox snapshot"})
	for name, v := range map[string]any{"rootfs": known.RootFS, "history": known.History} {
		if config[name], err = json.Marshal(v); err != nil {
			return none, err
		}
	}
	if b, err = json.Marshal(config); err != nil {
		return none, err
	}
	m.Config = ocispec.Descriptor{MediaType: m.Config.MediaType, Digest: digest.FromBytes(b), Size: int64(len(b))}
	m.Layers = append(m.Layers, layer)
	m.Versioned, m.Annotations = specs.Versioned{SchemaVersion: 2}, nil
	if err := content.WriteBlob(ctx, store, "weft-config-"+m.Config.Digest.String(), bytes.NewReader(b), m.Config); err != nil {
		return none, err
	}
	if m.MediaType == "" {
		m.MediaType = ocispec.MediaTypeImageManifest
	}
	if b, err = json.Marshal(m); err != nil {
		return none, err
	}
	d := ocispec.Descriptor{MediaType: m.MediaType, Digest: digest.FromBytes(b), Size: int64(len(b))}
	refs := map[string]string{"containerd.io/gc.ref.content.config": m.Config.Digest.String()}
	for i, l := range m.Layers {
		refs[fmt.Sprintf("containerd.io/gc.ref.content.l.%d", i)] = l.Digest.String()
	}
	return d, content.WriteBlob(ctx, store, "weft-manifest-"+d.Digest.String(), bytes.NewReader(b), d, content.WithLabels(refs))
}

// snapshot finds an image that a snapshot made. It is on this node or nowhere.
func (e *Engine) snapshot(ctx context.Context, name string) (Image, error) {
	img, err := e.client.GetImage(ctx, name)
	if errdefs.IsNotFound(err) {
		return Image{}, fault.New(fault.NotFound, "the snapshot %s is not on this node, or was removed with its template", clip(name))
	}
	if err != nil {
		return Image{}, err
	}
	return e.unpacked(ctx, img)
}

// SnapshotImages lists the images that snapshots made.
func (e *Engine) SnapshotImages(ctx context.Context) ([]Snapshot, error) {
	ctx, cancel := call(ctx, callTimeout)
	defer cancel()
	list, err := e.client.ImageService().List(ctx, fmt.Sprintf("labels.%q", labelSnapshot))
	if err != nil {
		return nil, err
	}
	var out []Snapshot
	for _, i := range list {
		if isSnapshot(i.Name) {
			out = append(out, Snapshot{Name: i.Name, Digest: i.Target.Digest.String(), CreatedAt: i.CreatedAt})
		}
	}
	return out, nil
}

// RemoveSnapshot removes an image that a snapshot made; none is no error. Sandboxes that use it keep its layers.
func (e *Engine) RemoveSnapshot(ctx context.Context, name string) error {
	if !isSnapshot(name) {
		return fault.New(fault.Denied, "image %s was not made by a snapshot", clip(name))
	}
	ctx, cancel := call(ctx, callTimeout)
	defer cancel()
	e.mu.Lock()
	delete(e.images, name)
	e.mu.Unlock()
	if err := e.client.ImageService().Delete(ctx, name, images.SynchronousDelete()); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}
