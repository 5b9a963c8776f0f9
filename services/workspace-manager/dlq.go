package manager

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// DLQList lists dead letters, oldest first. The cursor is a sequence.
func (s *Service) DLQList(ctx context.Context, by mesh.Caller, req workspace.DLQList) (workspace.Page[workspace.DeadLetter], error) {
	page := workspace.Page[workspace.DeadLetter]{Items: []workspace.DeadLetter{}}
	if err := checkOperator(by); err != nil {
		return page, err
	}
	n, err := limit(req.Limit)
	if err != nil {
		return page, err
	}
	filter, err := dlqFilter(req)
	if err != nil {
		return page, err
	}
	var next uint64 = 1
	if req.Cursor != "" {
		if next, err = strconv.ParseUint(req.Cursor, 10, 64); err != nil {
			return page, fault.New(fault.Invalid, "cursor %q is none of dlq-list's", req.Cursor)
		}
	}
	dlq, err := s.js.Stream(ctx, provision.DLQ)
	if err != nil {
		return page, fault.Wrap(err, fault.Unavailable, "dead letters can't be read now; try again")
	}
	for size := 0; next <= dlq.CachedInfo().State.LastSeq; {
		m, err := dlq.GetMsg(ctx, next, jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) || (err == nil && m.Sequence < next) {
			break // a server that has no next one may begin from the first again
		}
		if err != nil {
			return page, fault.Wrap(err, fault.Unavailable, "dead letters can't be read now; try again")
		}
		if size += len(m.Data)*4/3 + 1024; len(page.Items) == n || (size > maxPageBytes && len(page.Items) > 0) {
			page.Cursor = strconv.FormatUint(m.Sequence, 10)
			return page, nil
		}
		page.Items = append(page.Items, deadLetter(m))
		next = m.Sequence + 1
	}
	return page, nil
}

func dlqFilter(req workspace.DLQList) (string, error) {
	parts := []string{"*", "*"}
	for i, f := range []string{req.Tenant, req.Consumer} {
		if f != "" {
			if err := invalid(schemas.CheckName("filter", f)); err != nil {
				return "", err
			}
			parts[i] = f
		}
	}
	return schemas.Prefix + "dlq." + parts[0] + "." + parts[1], nil
}

func deadLetter(m *jetstream.RawStreamMsg) workspace.DeadLetter {
	return workspace.DeadLetter{Sequence: m.Sequence, Subject: m.Header.Get(mesh.HeaderDeadSubject), Stream: m.Header.Get(mesh.HeaderDeadStream),
		Reason: m.Header.Get(mesh.HeaderDeadReason), Time: m.Time.UTC(), Headers: flat(asSent(m.Header)), Body: m.Data}
}

// DLQRedrive sends dead letters on their way again and takes off those that were accepted. Killed in
// between, one is sent twice: as a submission with a ce-id, a repeat; else a second task.
func (s *Service) DLQRedrive(ctx context.Context, by mesh.Caller, req workspace.DLQRef) (workspace.DLQDone, error) {
	return s.eachDead(ctx, by, req, func(dlq jetstream.Stream, m *jetstream.RawStreamMsg) error {
		if err := s.redrive(ctx, m); err != nil {
			return err
		}
		return dlq.DeleteMsg(ctx, m.Sequence)
	})
}

// DLQDrop removes dead letters for good.
func (s *Service) DLQDrop(ctx context.Context, by mesh.Caller, req workspace.DLQRef) (workspace.DLQDone, error) {
	return s.eachDead(ctx, by, req, func(dlq jetstream.Stream, m *jetstream.RawStreamMsg) error {
		return dlq.DeleteMsg(ctx, m.Sequence)
	})
}

func (s *Service) eachDead(ctx context.Context, by mesh.Caller, req workspace.DLQRef, do func(jetstream.Stream, *jetstream.RawStreamMsg) error) (workspace.DLQDone, error) {
	var done workspace.DLQDone
	if err := checkOperator(by); err != nil {
		return done, err
	}
	if len(req.Sequences) == 0 || len(req.Sequences) > maxLimit {
		return done, fault.New(fault.Invalid, "name 1 to %d dead letters by sequence", maxLimit)
	}
	dlq, err := s.js.Stream(ctx, provision.DLQ)
	if err != nil {
		return done, fault.Wrap(err, fault.Unavailable, "dead letters can't be read now; try again")
	}
	for _, seq := range req.Sequences {
		m, err := dlq.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err == nil {
			err = do(dlq, m)
		}
		if err != nil {
			return done, err
		}
		done.Done++
	}
	return done, nil
}

// redrive publishes a dead letter where it came from. What came from the log is not written again, which
// only its owner may do: its follow-up is done for the record as it is now.
func (s *Service) redrive(ctx context.Context, m *jetstream.RawStreamMsg) error {
	subject := m.Header.Get(mesh.HeaderDeadSubject)
	from, err := schemas.ParseSubject(subject)
	if err != nil {
		return fault.New(fault.Invalid, "dead letter %d has no subject to go back to; drop it", m.Sequence)
	}
	switch from.Plane {
	case schemas.PlaneTask, schemas.PlaneMsg:
		_, err := s.conn.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: asSent(m.Header), Data: m.Data})
		return err
	case schemas.PlaneEvt:
		v := s.viewByName(from.Tenant)
		if v == nil || from.Entity != workspace.EntityTask {
			return fault.New(fault.Invalid, "dead letter %d is of no task that is here; drop it", m.Sequence)
		}
		r, err := get(ctx, s.stores.tasks, records.Key{Tenant: from.Tenant, Workspace: from.Workspace, ID: from.ID})
		if err != nil {
			return notGone(err)
		}
		if r.Value.State == workspace.Queued {
			if err := s.enqueue(ctx, r.Key, &r.Value, "/redrive"); err != nil {
				return err
			}
		}
		return v.eventTriggers(ctx, r)
	}
	return fault.New(fault.Invalid, "dead letter %d is of plane %s, which can't be redriven; drop it", m.Sequence, from.Plane)
}

// asSent gives the headers without those that the dead letters and the server added.
func asSent(h nats.Header) nats.Header {
	out := nats.Header{}
	for k, v := range h {
		if k != mesh.HeaderDeadReason && k != mesh.HeaderDeadStream && k != mesh.HeaderDeadSubject && !strings.HasPrefix(k, "Nats-") {
			out[k] = v
		}
	}
	return out
}
