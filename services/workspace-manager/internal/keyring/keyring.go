// Package keyring keeps the tenants' signing keys secret at rest: AES-256-GCM under a key file that
// only the manager can read. What is stored is bound to its tenant's name.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Key seals and opens. Its zero value is of no use; Open makes one.
type Key struct{ aead cipher.AEAD }

// Open reads the key file, and makes it (0600) where there is none. Replicas of the manager share one file.
func Open(path string) (*Key, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = create(path)
	}
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(raw) != 32 {
		return nil, fmt.Errorf("key file %s does not hold 64 hexadecimal digits", path)
	}
	return FromBytes(raw)
}

// FromBytes takes the 32 bytes of a key.
func FromBytes(raw []byte) (*Key, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &Key{aead}, err
}

// create writes a new key so that the file is whole or absent. Of two that create at once both read the first's.
func create(path string) ([]byte, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails, see crypto/rand
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(hex.EncodeToString(raw) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path)
}

// Seal encrypts secret for tenant.
func (k *Key) Seal(tenant string, secret []byte) []byte {
	nonce := make([]byte, k.aead.NonceSize())
	_, _ = rand.Read(nonce)
	return k.aead.Seal(nonce, nonce, secret, []byte(tenant))
}

// Open decrypts what Seal made for tenant. It fails for another tenant's, another key's, and anything changed.
func (k *Key) Open(tenant string, sealed []byte) ([]byte, error) {
	n := k.aead.NonceSize()
	if len(sealed) < n {
		return nil, errors.New("sealed key is too short")
	}
	b, err := k.aead.Open(nil, sealed[:n], sealed[n:], []byte(tenant))
	if err != nil {
		return nil, fmt.Errorf("the signing key of tenant %s can't be opened with this key file", tenant)
	}
	return b, nil
}
