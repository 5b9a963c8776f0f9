package secrets

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/weftmesh/weft/pkg/mesh/records"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets/internal/name"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// Vault is what the service needs of Vault. Connect makes the real one.
type Vault interface {
	Store
	Tokens
	// Ensure checks that Vault has what the service needs, and makes it where it may.
	Ensure(ctx context.Context) error
	// KeepAlive renews the service's own token until ctx ends.
	KeepAlive(ctx context.Context)
	Ready(ctx context.Context) error
	Address() string
	Namespace() string
	Close()
}

// Store keeps secrets.
type Store interface {
	Describe(ctx context.Context, s name.Secret) (vault.Info, error)
	List(ctx context.Context, tenant, workspace string) ([]string, error)
	Workspaces(ctx context.Context, tenant string) ([]string, error)
	Tenants(ctx context.Context) ([]string, error)
	PutKV(ctx context.Context, s name.Secret, v value.Value) (vault.Info, error)
	PutKey(ctx context.Context, s name.Secret, keyType string) (vault.Info, error)
	Remove(ctx context.Context, s name.Secret) error
	ReadKV(ctx context.Context, token value.Value, s name.Secret) (value.Value, error)
	Verify(ctx context.Context, s name.Secret, data []byte, signature string) (bool, error)
}

// Tokens makes and ends the tokens of sandboxes. See package vault for what each may do when.
type Tokens interface {
	Create(ctx context.Context, spec vault.TokenSpec) (vault.Token, error)
	Empower(ctx context.Context, policy string, access []vault.Access) error
	Renew(ctx context.Context, accessor string, ttl time.Duration) (time.Time, error)
	Revoke(ctx context.Context, accessor, policy string) error
	Lookup(ctx context.Context, accessor string) (vault.Holder, error)
	Accessors(ctx context.Context) ([]string, error)
	Policies(ctx context.Context) ([]string, error)
}

// Records keeps the records of one entity; records.Store is it.
type Records[T any] interface {
	Create(ctx context.Context, k records.Key, event string, v T) (records.Record[T], error)
	Get(ctx context.Context, k records.Key) (records.Record[T], error)
	Put(ctx context.Context, k records.Key, change func(v *T, exists bool) (event string, err error)) (records.Record[T], error)
	Write(ctx context.Context, k records.Key, expected uint64, event string, v T) (records.Record[T], error)
	Delete(ctx context.Context, k records.Key) error
	List(ctx context.Context, tenant, workspace string) ([]records.Record[T], error)
}

// Attempts says who holds an attempt; the workspace-manager answers.
type Attempts interface {
	Attempt(ctx context.Context, req workspace.AttemptRequest) (workspace.AttemptReply, error)
}

// Auditor takes audit entries. An entry that can't be written is logged; it stops nothing, because the
// records tell of the same issues and revocations.
type Auditor interface {
	Audit(ctx context.Context, entry wire.Audit) error
}

// Config of a Service. The first five are required; OnMesh fills in all of them but Vault.
type Config struct {
	Vault    Vault
	Grants   Records[wire.Grant]
	Leases   Records[wire.Lease]
	Attempts Attempts
	Auditor  Auditor

	// NodeAddress is where nodes reach Vault; the service's own address if empty.
	NodeAddress string
	// TTL of a lease whose grants name none; 60 s if 0.
	TTL time.Duration
	// ReconcileEvery is the time between two reconciliations; 30 s if 0.
	ReconcileEvery time.Duration
	// Retention of the records of revoked leases; 24 hours if 0. The audit log keeps its entries longer.
	Retention time.Duration
	Clock     func() time.Time
	Logger    *slog.Logger
}

// abandonedAfter is how long an issue may take before the reconciler counts it as dead. It is longer than
// the deadline of any caller.
const abandonedAfter = 60 * time.Second

// Service has one method for each operation. It is safe for concurrent use, and by several processes on
// the same log and the same Vault.
type Service struct {
	cfg   Config
	log   *slog.Logger
	curve nkeys.KeyPair // seals what nodes get; made at the start, its public half comes with each seal
	seal  string        // its public half

	reconcile sync.Mutex      // one at a time in this process
	foreign   map[string]bool // accessors of tokens that are not ours, under reconcile
}

// New makes a service. Run must follow for renewal of its own token and for reconciliation.
func New(cfg Config) (*Service, error) {
	if cfg.Vault == nil || cfg.Grants == nil || cfg.Leases == nil || cfg.Attempts == nil || cfg.Auditor == nil {
		return nil, errors.New("secrets: Config lacks Vault, Grants, Leases, Attempts or Auditor")
	}
	if cfg.TTL == 0 {
		cfg.TTL = 60 * time.Second
	}
	if cfg.ReconcileEvery == 0 {
		cfg.ReconcileEvery = 30 * time.Second
	}
	if cfg.Retention == 0 {
		cfg.Retention = 24 * time.Hour
	}
	if cfg.NodeAddress == "" {
		cfg.NodeAddress = cfg.Vault.Address()
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{cfg: cfg, log: cfg.Logger, foreign: map[string]bool{}}
	var err error
	if s.curve, err = nkeys.CreateCurveKeys(); err != nil {
		return nil, err
	}
	s.seal, err = s.curve.PublicKey()
	return s, err
}

// Ready tells whether the service can do its work now.
func (s *Service) Ready(ctx context.Context) error { return s.cfg.Vault.Ready(ctx) }

func (s *Service) now() time.Time { return s.cfg.Clock().UTC() }
