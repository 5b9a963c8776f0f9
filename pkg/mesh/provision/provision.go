// Package provision has the mesh's streams and buckets as data, and the one function that applies them.
package provision

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
)

// Version of this declared configuration. It grows with every change here; a binary never applies an
// older one over a newer one.
const Version = 1

// metaVersion is the key under which a stream's metadata says which version configured it.
const metaVersion = "weft-provision"

// Names of the shared streams and buckets.
const (
	Queue         = "QUEUE"
	DLQ           = "DLQ"
	LeasesBucket  = "leases"  // leader leases, expire by themselves
	CursorsBucket = "cursors" // how far a principal has read its messages
	KeysBucket    = "tenant-keys"
)

// SystemTenant owns the records that belong to no tenant, such as nodes.
const SystemTenant = "system"

// LeaseTTL is how long a leader lease lasts without renewal.
const LeaseTTL = 5 * time.Second

// minDuplicates is the shortest duplicate window that a server takes. Message ids are no part of the
// contract: a window would mix up the ids of different principals.
const minDuplicates = 100 * time.Millisecond

// Streams gives the names of a tenant's streams.
func Streams(tenant string) []string {
	return []string{"TASKS-" + tenant, "LOG-" + tenant, "OUT-" + tenant, "MSG-" + tenant, "AUDIT-" + tenant}
}

// Tenant is the configuration of a tenant's streams. Each has its own limits, so that one tenant's
// flood meets only those.
func Tenant(tenant string, replicas int) []jetstream.StreamConfig {
	out := jetstream.StreamConfig{Name: "OUT-" + tenant, Subjects: []string{"weft.v1.out." + tenant + ".>"},
		Description: "live output; the node's spool is the truth",
		Retention:   jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxBytes: 1 << 30, MaxAge: 24 * time.Hour, MaxMsgSize: 128 << 10, AllowDirect: true}
	if replicas == 1 {
		out.PersistMode = jetstream.AsyncPersistMode
	}
	cfgs := []jetstream.StreamConfig{
		{Name: "TASKS-" + tenant, Subjects: []string{"weft.v1.task." + tenant + ".*.*.submit"},
			Description: "submissions that no record has yet",
			Retention:   jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
			MaxMsgs: 100_000, MaxBytes: 1 << 30, MaxMsgSize: 1<<20 + 16<<10},
		{Name: "LOG-" + tenant, Subjects: []string{"weft.v1.evt." + tenant + ".>"},
			Description: "every change of every record",
			Retention:   jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
			MaxBytes: 8 << 30, MaxMsgsPerSubject: 1000, MaxMsgSize: 4 << 20},
		out,
		{Name: "MSG-" + tenant, Subjects: []string{"weft.v1.msg." + tenant + ".>"},
			Description: "messages between principals",
			Retention:   jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
			MaxBytes: 1 << 30, MaxAge: 7 * 24 * time.Hour, MaxMsgSize: 256<<10 + 8<<10},
		{Name: "AUDIT-" + tenant, Subjects: []string{"weft.v1.audit." + tenant + ".>"},
			Description: "who did what; only written, never changed",
			Retention:   jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
			MaxBytes: 1 << 30, MaxAge: 30 * 24 * time.Hour, MaxMsgSize: 64 << 10, DenyPurge: false, DenyDelete: true},
	}
	return finish(cfgs, replicas)
}

// Shared is the configuration of the streams that all tenants share; only services write them.
func Shared(replicas int) []jetstream.StreamConfig {
	return finish([]jetstream.StreamConfig{
		{Name: Queue, Subjects: []string{"weft.v1.queue.*.*"},
			Description: "attempts that wait for a node",
			Retention:   jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
			MaxMsgs: 100_000, MaxMsgSize: 16 << 10},
		{Name: DLQ, Subjects: []string{"weft.v1.dlq.*.*"},
			Description: "what could not be decoded or delivered",
			Retention:   jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
			MaxBytes: 1 << 30, MaxAge: 30 * 24 * time.Hour, MaxMsgSize: 2 << 20, AllowDirect: true},
	}, replicas)
}

// Buckets is the configuration of the key-value buckets.
func Buckets(replicas int) []jetstream.KeyValueConfig {
	return []jetstream.KeyValueConfig{
		{Bucket: LeasesBucket, TTL: LeaseTTL, Replicas: replicas, Description: "leader leases"},
		{Bucket: CursorsBucket, Replicas: replicas, Description: "how far messages were read"},
		{Bucket: KeysBucket, Replicas: replicas, Description: "tenants' agent signing keys, encrypted"},
	}
}

func finish(cfgs []jetstream.StreamConfig, replicas int) []jetstream.StreamConfig {
	for i := range cfgs {
		c := &cfgs[i]
		c.Replicas = replicas
		c.Storage = jetstream.FileStorage
		c.Duplicates = minDuplicates
		c.Metadata = map[string]string{metaVersion: strconv.Itoa(Version)}
		if c.Name == Queue {
			c.Duplicates = 2 * time.Minute // only the manager writes it; its ids are task and attempt
		}
	}
	return cfgs
}

// All applies what every mesh has: the shared streams, the buckets, and the system tenant's streams.
func All(ctx context.Context, js jetstream.JetStream, replicas int) error {
	if err := Apply(ctx, js, append(Shared(replicas), Tenant(SystemTenant, replicas)...)); err != nil {
		return err
	}
	for _, b := range Buckets(replicas) {
		if _, err := js.CreateOrUpdateKeyValue(ctx, b); err != nil {
			return fault.Wrap(err, fault.Unavailable, "bucket %s can't be set up", b.Bucket)
		}
	}
	return nil
}

// Apply makes the streams as declared. It is idempotent, leaves a stream that a newer version configured
// as it is, and stops with a sentence at one that can't be changed into what is declared: nothing is ever
// deleted to fit.
func Apply(ctx context.Context, js jetstream.JetStream, cfgs []jetstream.StreamConfig) error {
	for _, c := range cfgs {
		if err := apply(ctx, js, c); err != nil {
			return err
		}
	}
	return nil
}

func apply(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig) error {
	_, err := js.CreateStream(ctx, c)
	if err == nil {
		return nil
	}
	if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fault.Wrap(err, fault.Unavailable, "stream %s can't be made", c.Name)
	}
	s, err := js.Stream(ctx, c.Name)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "stream %s can't be read", c.Name)
	}
	have := s.CachedInfo().Config
	if v, _ := strconv.Atoi(have.Metadata[metaVersion]); v > Version {
		return nil
	}
	if have.Retention != c.Retention || have.Storage != c.Storage {
		return fault.New(fault.Conflict, "stream %s is there with another retention or storage than this version needs; nothing was changed. Move its data away, or start the version that made it", c.Name)
	}
	if _, err := js.UpdateStream(ctx, c); err != nil {
		return fault.Wrap(err, fault.Conflict, "stream %s can't be changed to what this version needs; nothing was changed", c.Name)
	}
	return nil
}

// Remove deletes a tenant's streams with all that is in them. Absent ones are no error.
func Remove(ctx context.Context, js jetstream.JetStream, tenant string) error {
	for _, name := range Streams(tenant) {
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}
