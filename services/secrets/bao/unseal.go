package bao

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// tokenPeriod is how long the service's token lasts without renewal. After a longer pause a new one is made.
const tokenPeriod = 72 * time.Hour

// keys is the content of keys.json. RootToken is there only until the first start is done.
type keys struct {
	UnsealKey    string `json:"unseal_key"`
	RootToken    string `json:"root_token,omitempty"`
	ServiceToken string `json:"service_token,omitempty"`
	Provisioned  string `json:"provisioned,omitempty"` // vault.Fingerprint of when it was set up
}

func (s *Server) readKeys() (keys, error) {
	var k keys
	b, err := os.ReadFile(s.path(keysFile))
	if err != nil {
		return k, err
	}
	if json.Unmarshal(b, &k) != nil || k.UnsealKey == "" {
		return k, errors.New("it holds no unseal key") // without the cause: it could quote the file
	}
	return k, nil
}

func (s *Server) writeKeys(k keys) error {
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return replaceFile(s.path(keysFile), b)
}

// unlock initialises and unseals the server that answers, and makes what the service needs in it.
func (s *Server) unlock(ctx context.Context) error {
	v := s.api
	st, err := v.Sys().SealStatusWithContext(ctx)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "OpenBao does not answer")
	}
	if !st.Initialized {
		if err := s.initialise(ctx, v); err != nil {
			return err
		}
	}
	k, err := s.readKeys()
	if _, half := os.Stat(s.path(initFile)); err != nil && half == nil {
		return errHalfInit
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "OpenBao's storage in %s has data, but the key that opens it can't be read from %s; put that file back, or move the directory away to begin without secrets",
			s.cfg.Dir, s.path(keysFile))
	}
	if st, err = v.Sys().SealStatusWithContext(ctx); err == nil && st.Sealed {
		_, err = v.Sys().UnsealWithContext(ctx, k.UnsealKey)
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "OpenBao could not be unsealed; does %s belong to this storage?", s.path(keysFile))
	}
	if err := active(ctx, v); err != nil {
		return err
	}
	if k.ServiceToken == "" || k.RootToken != "" || k.Provisioned != vault.Fingerprint() {
		return s.bootstrap(ctx, k)
	}
	return nil
}

// errHalfInit: the server has storage whose key was lost before it was ever used.
var errHalfInit = errors.New("initialised without its key being kept")

// initialise makes new storage. Dying between the server's answer and the writing of the key loses the
// key of a storage that has no secrets yet: initFile says so, and discardHalfInit throws it away.
func (s *Server) initialise(ctx context.Context, v *api.Client) error {
	if err := replaceFile(s.path(initFile), nil); err != nil {
		return err
	}
	r, err := v.Sys().InitWithContext(ctx, &api.InitRequest{SecretShares: 1, SecretThreshold: 1})
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "OpenBao could not be initialised")
	}
	if len(r.KeysB64) != 1 {
		return fault.New(fault.Internal, "OpenBao gave %d unseal keys, not 1", len(r.KeysB64))
	}
	if err := s.writeKeys(keys{UnsealKey: r.KeysB64[0], RootToken: r.RootToken}); err != nil {
		return err
	}
	s.log.Info("initialised OpenBao", "dir", s.cfg.Dir)
	return os.Remove(s.path(initFile))
}

// discardHalfInit removes storage whose key was never written. No server may run on it.
func (s *Server) discardHalfInit() error {
	if _, err := os.Stat(s.path(initFile)); err != nil {
		return nil
	}
	if _, err := s.readKeys(); err == nil {
		return os.Remove(s.path(initFile))
	}
	if err := os.RemoveAll(s.path(raftDir)); err != nil {
		return err
	}
	return os.Remove(s.path(initFile))
}

// active waits until the unsealed server has become active, some 20 ms when it is alone.
func active(ctx context.Context, v *api.Client) error {
	for {
		h, err := v.Sys().HealthWithContext(ctx)
		if err == nil && !h.Sealed && !h.Standby {
			return nil
		}
		select {
		case <-ctx.Done():
			return fault.Wrap(errors.Join(err, ctx.Err()), fault.Unavailable, "OpenBao was unsealed but does not become active")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// bootstrap uses a root token to make what the service needs and the service's own token, and revokes
// it. Repeating it gives the service a new token and revokes the one before.
func (s *Server) bootstrap(ctx context.Context, k keys) error {
	root, err := s.rootToken(ctx, k)
	if err != nil {
		return err
	}
	v := s.as(root)
	if err := vault.Provision(ctx, v); err != nil {
		return fault.Wrap(err, fault.Unavailable, "OpenBao could not be set up")
	}
	if err := s.audit(ctx, v); err != nil {
		return err
	}
	renewable := true
	t, err := v.Auth().Token().CreateOrphanWithContext(ctx, &api.TokenCreateRequest{
		Policies: []string{vault.ServicePolicy}, Period: fmt.Sprintf("%ds", int(tokenPeriod.Seconds())),
		NoDefaultPolicy: true, DisplayName: "weft-secrets", Renewable: &renewable,
	})
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "OpenBao gave no token to the secrets service")
	}
	if k.ServiceToken != "" {
		_ = v.Auth().Token().RevokeTreeWithContext(ctx, k.ServiceToken) // else it ends by itself
	}
	k.ServiceToken, k.RootToken, k.Provisioned = t.Auth.ClientToken, root, vault.Fingerprint()
	if err := s.writeKeys(k); err != nil {
		return err
	}
	if err := v.Auth().Token().RevokeSelfWithContext(ctx, ""); err != nil {
		return fault.Wrap(err, fault.Unavailable, "OpenBao's root token could not be revoked")
	}
	k.RootToken = ""
	return s.writeKeys(k)
}

// rootToken gives the one of the first start if it still works, else makes one with the unseal key.
func (s *Server) rootToken(ctx context.Context, k keys) (string, error) {
	if k.RootToken != "" {
		if _, err := s.as(k.RootToken).Auth().Token().LookupSelfWithContext(ctx); err == nil {
			return k.RootToken, nil
		}
	}
	v := s.api
	wrap := func(err error) error {
		return fault.Wrap(err, fault.Unavailable, "OpenBao gave no root token for its unseal key")
	}
	if err := v.Sys().GenerateRootCancelWithContext(ctx); err != nil {
		return "", wrap(err)
	}
	attempt, err := v.Sys().GenerateRootInitWithContext(ctx, "", "")
	if err != nil {
		return "", wrap(err)
	}
	done, err := v.Sys().GenerateRootUpdateWithContext(ctx, k.UnsealKey, attempt.Nonce)
	if err != nil {
		return "", wrap(err)
	}
	// The token comes combined with the one-time password of the attempt.
	token, err := base64.RawStdEncoding.DecodeString(done.EncodedToken)
	if err != nil || len(token) != len(attempt.OTP) {
		return "", wrap(errors.New("its form is not known"))
	}
	for i := range token {
		token[i] ^= attempt.OTP[i]
	}
	return string(token), nil
}

// audit turns the audit device on where the configuration could not: HashiCorp's Vault takes it by the API.
func (s *Server) audit(ctx context.Context, v *api.Client) error {
	devices, err := v.Sys().ListAuditWithContext(ctx)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "Vault's audit devices could not be listed")
	}
	if _, ok := devices["weft/"]; ok {
		return nil
	}
	err = v.Sys().EnableAuditWithOptionsWithContext(ctx, "weft", &api.EnableAuditOptions{Type: "file", Options: map[string]string{"file_path": auditFile}})
	return fault.Wrap(err, fault.Unavailable, "Vault's audit device could not be enabled")
}

// Login gives the service's token, and a new one if the server does not take it any more. It makes the
// Server an Auth of the vault adapter.
func (s *Server) Login(ctx context.Context, _ *api.Client) (value.Value, error) {
	s.token.Lock()
	defer s.token.Unlock()
	k, err := s.readKeys()
	if err != nil {
		return value.Value{}, fault.Wrap(err, fault.Unavailable, "the service's token can't be read from %s", s.path(keysFile))
	}
	_, err = s.as(k.ServiceToken).Auth().Token().LookupSelfWithContext(ctx)
	var refused *api.ResponseError
	if err != nil && (!errors.As(err, &refused) || refused.StatusCode != 403) {
		return value.Value{}, fault.Wrap(err, fault.Unavailable, "OpenBao does not answer; it is started again by itself")
	}
	if err != nil {
		s.log.Warn("the service's token has ended; making a new one")
		s.mu.Lock()
		err = s.bootstrap(ctx, k)
		s.mu.Unlock()
		if err != nil {
			return value.Value{}, err
		}
		if k, err = s.readKeys(); err != nil {
			return value.Value{}, err
		}
	}
	return value.Of(k.ServiceToken), nil
}
