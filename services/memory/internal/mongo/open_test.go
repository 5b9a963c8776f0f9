package mongo_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/memory/internal/mongo"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

func TestNewerSchemaIsLeftAlone(t *testing.T) {
	url := fresh(t)
	require.NoError(t, connect(t, url).Close())
	client, err := driver.Connect(options.Client().ApplyURI(url))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(context.Background())) }()
	name := url[len(url)-21:]
	_, err = client.Database(name).Collection("memory_schema").UpdateOne(t.Context(),
		bson.D{{Key: "_id", Value: "schema"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: 9}}}})
	require.NoError(t, err)
	_, err = mongo.Open(t.Context(), url)
	require.ErrorContains(t, err, "schema version 9, and this release knows versions up to 1")
}

func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = mongo.Open(ctx, "mongodb://ann:secret@"+address+"/weft?serverSelectionTimeoutMS=200")
	require.True(t, fault.Is(err, fault.Unavailable), err)
	_, sentence := fault.Public(err)
	require.Equal(t, "the memory database does not answer; try again", sentence)
	for _, bad := range []string{"mongodb://ann:secret@:::", "http://ann:secret@host", "mongodb://ann:secret@host/?w=%zz"} {
		_, err = mongo.Open(ctx, bad)
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A server that goes away in the middle is reported as unavailable.
func TestServerGoesAway(t *testing.T) {
	s := connect(t, fresh(t))
	require.NoError(t, s.Close())
	_, err := s.Get(t.Context(), store.Scope{Tenant: "acme", Workspace: "demo"}, first)
	require.True(t, fault.Is(err, fault.Unavailable), err)
}
