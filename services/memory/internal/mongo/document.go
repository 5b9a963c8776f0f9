package mongo

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/lexical"
	"github.com/weftmesh/weft/services/memory/internal/rank"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// forever is valid_to of what is valid.
const forever = math.MaxInt64

// document is an item as it is stored. Times are microseconds since 1970.
type document struct {
	ID        string `bson:"_id"` // tenant/workspace/item, so that an id means nothing in another workspace
	Tenant    string `bson:"tenant"`
	Workspace string `bson:"workspace"`
	Item      string `bson:"item"`
	Kind      string `bson:"kind"`
	Key       string `bson:"key,omitempty"`
	Chain     string `bson:"chain"` // "key:" and the key, or "item:" and the id of the first
	Version   int    `bson:"version"`
	Order     string `bson:"order"` // sorts by creation, then id
	Pinned    bool   `bson:"pinned"`
	Created   int64  `bson:"created"`
	ValidFrom int64  `bson:"valid_from"`
	ValidTo   int64  `bson:"valid_to"`

	Supersedes   string `bson:"supersedes,omitempty"`
	SupersededBy string `bson:"superseded_by,omitempty"`
	Principal    string `bson:"principal"`
	Task         string `bson:"task,omitempty"`
	Attempt      int    `bson:"attempt,omitempty"`

	Text string   `bson:"text"`
	Tags []string `bson:"tags,omitempty"`
	Data string   `bson:"data,omitempty"` // JSON, as text: its names may be any

	// Terms are those of text, key and tags, each once; Frequency has the weight of each. Terms have no dot
	// or dollar in them, so they can be field names.
	Terms     []string           `bson:"terms"`
	Frequency map[string]float64 `bson:"frequency"`
	Length    float64            `bson:"length"`
}

func newDocument(sc store.Scope, it memory.Item, chain string) document {
	d := document{
		ID: documentID(sc, it.ID), Tenant: sc.Tenant, Workspace: sc.Workspace, Item: it.ID, Kind: string(it.Kind), Key: it.Key,
		Chain: chain, Version: it.Version, Order: order(it.CreatedAt, it.ID), Pinned: it.Pinned, Created: it.CreatedAt.UnixMicro(),
		ValidFrom: it.ValidFrom.UnixMicro(), ValidTo: forever, Supersedes: it.Supersedes, SupersededBy: it.SupersededBy,
		Principal: it.Source.Principal, Task: it.Source.Task, Attempt: it.Source.Attempt,
		Text: it.Text, Tags: it.Tags, Data: string(it.Data), Terms: []string{}, Frequency: map[string]float64{},
	}
	if it.ValidTo != nil {
		d.ValidTo = it.ValidTo.UnixMicro()
	}
	for _, part := range []struct {
		text   string
		weight float64
	}{
		{it.Text, rank.TextWeight}, {it.Key, rank.KeyWeight}, {strings.Join(it.Tags, " "), rank.TagWeight},
	} {
		for _, t := range lexical.Terms(part.text) {
			if d.Frequency[t] == 0 {
				d.Terms = append(d.Terms, t)
			}
			d.Frequency[t] += part.weight
			d.Length++
		}
	}
	return d
}

func (d document) item() memory.Item {
	it := memory.Item{
		ID: d.Item, Workspace: d.Workspace, Kind: memory.Kind(d.Kind), Key: d.Key, Text: d.Text, Tags: d.Tags, Pinned: d.Pinned,
		Source:  memory.Source{Principal: d.Principal, Task: d.Task, Attempt: d.Attempt},
		Version: d.Version, CreatedAt: fromMicro(d.Created), ValidFrom: fromMicro(d.ValidFrom),
		Supersedes: d.Supersedes, SupersededBy: d.SupersededBy,
	}
	if d.Data != "" {
		it.Data = json.RawMessage(d.Data)
	}
	if d.ValidTo != forever {
		t := fromMicro(d.ValidTo)
		it.ValidTo = &t
	}
	return it
}

func documentID(sc store.Scope, id string) string { return home(sc) + "/" + id }

// home names a workspace; labels have no slash.
func home(sc store.Scope) string { return sc.Tenant + "/" + sc.Workspace }

func keyChain(key string) string { return "key:" + key }

// order is a string that sorts by time, then id. Times before 1970 sort too, by the flipped sign.
func order(at time.Time, id string) string {
	return fmt.Sprintf("%016x-%s", uint64(at.UnixMicro())^(1<<63), id)
}

func fromMicro(us int64) time.Time { return time.UnixMicro(us).UTC() }
