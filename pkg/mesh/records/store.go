package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
)

// Key names a record of one entity. Workspace is "-" for what is the tenant's as a whole.
type Key struct {
	Tenant, Workspace, ID string
}

// Record is a value as it stands in the log.
type Record[T any] struct {
	Key
	Value    T
	Sequence uint64 // in the tenant's log; what Write expects
	Event    string // the event that led to it
	EventID  string
	Time     time.Time // of the write, as the server saw it
	// Traceparent is the trace in which it was written.
	Traceparent string
}

// Store reads and writes the records of one entity. It is safe for concurrent use.
type Store[T any] struct {
	c      *mesh.Conn
	entity string
	schema int
	now    func() time.Time
	reads  shared
}

// New gives the store of entity. schema is the version of T's shape, from 1; it only grows.
func New[T any](c *mesh.Conn, entity string, schema int) *Store[T] {
	return &Store[T]{c: c, entity: entity, schema: schema, now: time.Now}
}

// Stream is the name of the stream that holds a tenant's log.
func Stream(tenant string) string { return "LOG-" + tenant }

// casRetries bounds how often Update starts over; each loss means that another writer won.
const casRetries = 64

// Create writes the first state of a record. It is a conflict if there is one.
func (s *Store[T]) Create(ctx context.Context, k Key, event string, v T) (Record[T], error) {
	r, err := s.Write(ctx, k, 0, event, v)
	if fault.Is(err, fault.Conflict) {
		return r, fault.Wrap(err, fault.Conflict, "%s %q exists already", s.entity, k.ID)
	}
	return r, err
}

// Write writes the next state, if the record's last sequence is still expected (0: there is none).
// A conflict means that it isn't.
func (s *Store[T]) Write(ctx context.Context, k Key, expected uint64, event string, v T) (Record[T], error) {
	subject, err := s.subject(k)
	if err != nil {
		return Record[T]{}, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return Record[T]{}, fmt.Errorf("%s %s: %w", s.entity, k.ID, err)
	}
	r := Record[T]{Key: k, Value: v, Event: event, EventID: schemas.NewID(), Time: s.now().UTC()}
	m := &nats.Msg{Subject: subject, Data: b, Header: s.header(subject, r)}
	mesh.ExpectLast(m.Header, expected)
	ack, err := s.c.PublishMsg(ctx, m)
	if err != nil {
		return Record[T]{}, err
	}
	r.Sequence, r.Traceparent = ack.Sequence, m.Header.Get(schemas.HeaderTraceparent)
	return r, nil
}

func (s *Store[T]) header(subject string, r Record[T]) nats.Header {
	h := nats.Header{}
	h.Set(schemas.HeaderSpecVersion, "1.0")
	h.Set(schemas.HeaderID, r.EventID)
	h.Set(schemas.HeaderType, schemas.EventType(s.entity, r.Event))
	h.Set(schemas.HeaderSource, "weft/"+s.c.Name())
	h.Set(schemas.HeaderSubject, subject)
	h.Set(schemas.HeaderTime, r.Time.Format(time.RFC3339Nano))
	h.Set(schemas.HeaderSchema, strconv.Itoa(s.schema))
	return h
}

// Get reads the present state from the log's leader. not_found if there is none.
func (s *Store[T]) Get(ctx context.Context, k Key) (Record[T], error) {
	subject, err := s.subject(k)
	if err != nil {
		return Record[T]{}, err
	}
	m, err := s.reads.do(ctx, subject, func(ctx context.Context) (*message, error) { return s.last(ctx, k.Tenant, subject) })
	if err != nil {
		return Record[T]{}, err
	}
	if m == nil {
		return Record[T]{}, s.notFound(k)
	}
	return decode[T](s.entity, s.schema, m)
}

func (s *Store[T]) notFound(k Key) error {
	if k.Workspace == schemas.NoWorkspace {
		return fault.New(fault.NotFound, "no %s %q", s.entity, k.ID)
	}
	return fault.New(fault.NotFound, "no %s %q in workspace %q", s.entity, k.ID, k.Workspace)
}

// Update changes a record by compare-and-set: change gets the present state, alters it and names the
// event. It is called again with the newer state when another writer was quicker, so it must have no
// effect of its own. An empty event writes nothing and gives the present state.
func (s *Store[T]) Update(ctx context.Context, k Key, change func(*T) (event string, err error)) (Record[T], error) {
	for range casRetries {
		r, err := s.Get(ctx, k)
		if err != nil {
			return r, err
		}
		v := r.Value
		event, err := change(&v)
		if err != nil || event == "" {
			return r, err
		}
		n, err := s.Write(ctx, k, r.Sequence, event, v)
		if !fault.Is(err, fault.Conflict) {
			return n, err
		}
	}
	return Record[T]{}, fault.New(fault.Conflict, "%s %q changes too fast; try again", s.entity, k.ID)
}

// UpdateFrom is Update by one who knows a state of the record that most likely is the present one: it is read only if
// that is not so, or if change wants to do nothing to it, or refuses it. A Sequence of 0 is no state. What known.Value
// refers to stays as it is.
func (s *Store[T]) UpdateFrom(ctx context.Context, known Record[T], change func(*T) (event string, err error)) (Record[T], error) {
	var v T
	b, err := json.Marshal(known.Value)
	if err == nil && known.Sequence > 0 && json.Unmarshal(b, &v) == nil {
		if event, err := change(&v); err == nil && event != "" {
			r, err := s.Write(ctx, known.Key, known.Sequence, event, v)
			if !fault.Is(err, fault.Conflict) {
				return r, err
			}
		}
	}
	return s.Update(ctx, known.Key, change)
}

// Put creates a record or changes the one that is there, like Update; exists says which.
func (s *Store[T]) Put(ctx context.Context, k Key, change func(v *T, exists bool) (event string, err error)) (Record[T], error) {
	for range casRetries {
		r, err := s.Get(ctx, k)
		exists := err == nil
		if err != nil && !fault.Is(err, fault.NotFound) {
			return r, err
		}
		v := r.Value
		event, err := change(&v, exists)
		if err != nil || event == "" {
			return r, err
		}
		n, err := s.Write(ctx, k, r.Sequence, event, v)
		if !fault.Is(err, fault.Conflict) {
			return n, err
		}
	}
	return Record[T]{}, fault.New(fault.Conflict, "%s %q changes too fast; try again", s.entity, k.ID)
}

// Delete purges the record and its history. Deleting what is not there is no error.
func (s *Store[T]) Delete(ctx context.Context, k Key) error {
	subject, err := s.subject(k)
	if err != nil {
		return err
	}
	return s.purge(ctx, k.Tenant, subject)
}

// DeleteAll purges every record of the entity in a workspace.
func (s *Store[T]) DeleteAll(ctx context.Context, tenant, workspace string) error {
	subject, err := s.filter(tenant, workspace)
	if err != nil {
		return err
	}
	return s.purge(ctx, tenant, subject)
}

func (s *Store[T]) subject(k Key) (string, error) {
	subject, err := schemas.Evt(k.Tenant, k.Workspace, s.entity, k.ID)
	if err != nil {
		return "", fault.New(fault.Invalid, "%v", err)
	}
	return subject, nil
}

// filter is the subject of all records of the entity in a workspace, or in all with "*".
func (s *Store[T]) filter(tenant, workspace string) (string, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return "", fault.New(fault.Invalid, "%v", err)
	}
	if workspace != "*" {
		if err := schemas.CheckWorkspace(workspace); err != nil {
			return "", fault.New(fault.Invalid, "%v", err)
		}
	}
	return schemas.Prefix + "evt." + tenant + "." + workspace + "." + s.entity + ".*", nil
}

// errForeign marks a message in the log that no Store wrote.
var errForeign = errors.New("not a record")

// message is a message of the log, however it was read.
type message struct {
	subject string
	header  nats.Header
	data    []byte
	seq     uint64
	time    time.Time
}

func decode[T any](entity string, schema int, m *message) (Record[T], error) {
	var r Record[T]
	s, err := schemas.ParseSubject(m.subject)
	if err != nil {
		return r, fmt.Errorf("%w: %w", errForeign, err)
	}
	e, event, ok := schemas.ParseEventType(m.header.Get(schemas.HeaderType))
	if !ok || e != entity || s.Plane != schemas.PlaneEvt || s.Entity != entity || m.header.Get(schemas.HeaderSubject) != m.subject {
		return r, errForeign
	}
	if v, err := strconv.Atoi(m.header.Get(schemas.HeaderSchema)); err != nil || v > schema {
		return r, fault.New(fault.Unavailable, "%s %q was written by a newer version of Weft (schema %s, this one reads up to %d); update this part",
			entity, s.ID, m.header.Get(schemas.HeaderSchema), schema)
	}
	if err := json.Unmarshal(m.data, &r.Value); err != nil {
		return r, fmt.Errorf("%s %s at %d: %w", entity, s.ID, m.seq, err)
	}
	r.Key = Key{Tenant: s.Tenant, Workspace: s.Workspace, ID: s.ID}
	r.Sequence, r.Event, r.EventID, r.Time = m.seq, event, m.header.Get(schemas.HeaderID), m.time
	r.Traceparent = m.header.Get(schemas.HeaderTraceparent)
	return r, nil
}

func fromJetStream(m jetstream.Msg) (*message, error) {
	md, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	return &message{subject: m.Subject(), header: m.Headers(), data: m.Data(), seq: md.Sequence.Stream, time: md.Timestamp}, nil
}

// Decode reads a record from a consumer's delivery. ok is false for what is no record of this entity.
func (s *Store[T]) Decode(d mesh.Delivery) (r Record[T], ok bool, err error) {
	r, err = decode[T](s.entity, s.schema, &message{subject: d.Subject, header: d.Header, data: d.Data, seq: d.Sequence, time: d.Time})
	if errors.Is(err, errForeign) {
		return r, false, nil
	}
	return r, err == nil, err
}
