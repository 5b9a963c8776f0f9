// Package mongo keeps memory items in MongoDB, for several replicas of the service at once.
//
// It uses only what every server of the wire protocol has: finds, and inserts into unique indexes. No
// transactions, no text index, no counters, and no update that would have to be atomic. Three rules follow:
//
//   - What decides a race is the insertion of a document into the unique index of (tenant, workspace, chain,
//     version). A chain is a key, or the first of keyless items that supersede one another. The item of
//     version n+1 can be inserted once; from then on version n is superseded.
//   - What the insertion implies (the old item's valid_to and superseded_by) is written after it, by
//     whoever comes first: the writer, or, had that died, the next reader or writer, who finds the mark
//     that the writer made before. It is the one change that a document ever sees, and always the same.
//   - Terms and their counts are stored with the item, and the weights of a search are computed here.
package mongo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

const (
	// opTimeout ends a call whose caller set no earlier deadline.
	opTimeout = 15 * time.Second
	// deleteTimeout is that of deleting a workspace or a tenant, which takes as long as it has items.
	deleteTimeout = time.Minute
	// schemaVersion is that of the documents. A higher one in the database stops the start.
	schemaVersion = 1
	// defaultDatabase is used if the URL names none.
	defaultDatabase = "weft"
)

// Store keeps items in one database. See package store for the contract.
type Store struct {
	client     *mongo.Client
	items      *mongo.Collection
	tombstones *mongo.Collection
	marks      *mongo.Collection

	now    func() time.Time
	mu     sync.Mutex
	counts map[store.Scope]count
	calls  sync.WaitGroup
}

// Open connects to a MongoDB URL, whose path names the database, and prepares its collections. Writes are
// acknowledged by a majority, from disk; everything is read from the primary.
func Open(ctx context.Context, uri string) (*Store, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return nil, errors.New("the MongoDB URL is malformed") // its text may hold a password
	}
	name := strings.Trim(u.Path, "/")
	if name == "" {
		name = defaultDatabase
	}
	journal := true
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetAppName("weft-memory").
		SetReadPreference(readpref.Primary()).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journal}))
	if err != nil {
		return nil, errors.New("the MongoDB URL is not usable: check its options")
	}
	db := client.Database(name)
	s := &Store{
		client: client, items: db.Collection("memory_items"), tombstones: db.Collection("memory_tombstones"),
		marks: db.Collection("memory_marks"), now: time.Now,
		counts: map[store.Scope]count{},
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := s.prepare(ctx, db.Collection("memory_schema")); err != nil {
		return nil, errors.Join(classify(ctx, err), client.Disconnect(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// prepare checks the schema's version and makes the indexes.
func (s *Store) prepare(ctx context.Context, schema *mongo.Collection) error {
	var present struct {
		Version int `bson:"version"`
	}
	err := schema.FindOne(ctx, bson.D{{Key: "_id", Value: "schema"}}).Decode(&present)
	if errors.Is(err, mongo.ErrNoDocuments) {
		_, err = schema.InsertOne(ctx, bson.D{{Key: "_id", Value: "schema"}, {Key: "version", Value: schemaVersion}})
		if mongo.IsDuplicateKeyError(err) { // another replica starts too
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("schema version: %w", err)
	}
	if present.Version > schemaVersion {
		return fault.New(fault.Unavailable,
			"the memory database has schema version %d, and this release knows versions up to %d: run the newer release; nothing was changed",
			present.Version, schemaVersion)
	}
	for _, x := range []struct {
		c       *mongo.Collection
		indexes []index
	}{
		{s.items, []index{
			{"chain", true, []string{"tenant", "workspace", "chain", "version"}},
			{"order", false, []string{"tenant", "workspace", "-order"}},
			{"tags", false, []string{"tenant", "workspace", "tags", "-order"}},
			{"terms", false, []string{"tenant", "workspace", "terms", "-order"}},
		}},
		{s.tombstones, []index{{"workspace", false, []string{"tenant", "workspace"}}}},
		{s.marks, []index{{"workspace", false, []string{"tenant", "workspace"}}}},
	} {
		if err := ensure(ctx, x.c, x.indexes); err != nil {
			return fmt.Errorf("indexes of %s: %w", x.c.Name(), err)
		}
	}
	return nil
}

// index is one of a collection's. A field that begins with a hyphen is in descending order.
type index struct {
	name   string
	unique bool
	fields []string
}

// ensure makes the indexes that are missing.
func ensure(ctx context.Context, c *mongo.Collection, indexes []index) error {
	present, err := c.Indexes().ListSpecifications(ctx)
	if err != nil {
		return err
	}
	for _, x := range indexes {
		if slices.ContainsFunc(present, func(p mongo.IndexSpecification) bool { return p.Name == x.name }) {
			continue
		}
		keys := bson.D{}
		for _, f := range x.fields {
			order := 1
			if strings.HasPrefix(f, "-") {
				f, order = f[1:], -1
			}
			keys = append(keys, bson.E{Key: f, Value: order})
		}
		o := options.Index().SetName(x.name)
		if x.unique {
			o.SetUnique(true)
		}
		if _, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: o}); err != nil {
			return err
		}
	}
	return nil
}

// Close waits for the calls under way and disconnects.
func (s *Store) Close() error {
	s.calls.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	return s.client.Disconnect(ctx)
}

// call runs one operation with a deadline, and gives its failure a code.
func (s *Store) call(ctx context.Context, f func(context.Context) error) error {
	return s.callFor(ctx, opTimeout, f)
}

func (s *Store) callFor(ctx context.Context, most time.Duration, f func(context.Context) error) error {
	s.calls.Add(1)
	defer s.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return classify(ctx, f(ctx))
}

// classify gives a failure of the database the code and the sentence that the caller can act on.
func classify(ctx context.Context, err error) error {
	var coded *fault.Error
	switch {
	case err == nil || errors.As(err, &coded):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case mongo.IsTimeout(err), mongo.IsNetworkError(err), errors.As(err, new(mongo.ServerError)) && !mongo.IsDuplicateKeyError(err) && retryable(err):
		return fault.Wrap(err, fault.Unavailable, "the memory database does not answer; try again")
	case errors.Is(err, mongo.ErrClientDisconnected):
		return fault.Wrap(err, fault.Unavailable, "the memory service is stopping; try again")
	}
	return err
}

// retryable reports whether the server says that trying again helps: an election, or a shutdown.
func retryable(err error) bool {
	var se mongo.ServerError
	return errors.As(err, &se) && (se.HasErrorLabel("RetryableWriteError") || se.HasErrorCode(10107) || se.HasErrorCode(11600) || se.HasErrorCode(189))
}
