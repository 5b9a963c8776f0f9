package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/runtime/internal/cgroup"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// Limits of what a sandbox's memory on the node takes.
const (
	maxSecretBytes = 4 << 20
	maxSecretFiles = 256
	maxKeptBytes   = 8 << 20
)

// Sandbox is one running sandbox, or one that has ended and was not destroyed yet.
type Sandbox struct {
	*body
	spec  Spec
	blank *blank // of one that waits to be claimed
}

// ID of the sandbox.
func (s *Sandbox) ID() string { return s.spec.ID }

// Spec it was made with, resources resolved.
func (s *Sandbox) Spec() Spec { return s.spec }

// Labels say what it is. Its container has them, unless it was made before it was claimed.
func (s *Sandbox) Labels() map[string]string {
	l, _ := s.labels() // it was made with them
	return l
}

// Supervisor is the channel to its process 1.
func (s *Sandbox) Supervisor() *supervisor.Sandbox { return s.channel }

// Gone is closed when process 1 has ended, and with it everything in the sandbox.
func (s *Sandbox) Gone() <-chan struct{} { return s.gone }

// HostUID is the host's user that the payload is.
func (s *Sandbox) HostUID() uint32 { return s.ids.first() + s.spec.user() }

// Payload is the identity under which everything that is not process 1 runs, where there is no root inside; see Sandbox.Payload.
func Payload() supervisor.Identity {
	return supervisor.Identity{UID: PayloadUID, GID: PayloadGID}
}

// ImageEnv is the environment that the image wants for what runs in it.
func (s *Sandbox) ImageEnv(ctx context.Context) (map[string]string, error) {
	image, err := s.node.engine.Image(ctx, s.spec.Image)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for _, v := range image.Config.Env {
		if name, value, ok := strings.Cut(v, "="); ok {
			env[name] = value
		}
	}
	return env, nil
}

// MountWorkspace mounts what the filesystem service prepared at /workspace, where the sandbox sees it
// at once. Doing it again changes nothing.
func (s *Sandbox) MountWorkspace(p filesystem.Prepared, readOnly bool) error {
	if !s.spec.Files {
		return fault.New(fault.Invalid, "sandbox %s was made without a workspace", s.spec.ID)
	}
	s.destroy.Lock() // not while it is being taken away
	defer s.destroy.Unlock()
	target := s.workspace()
	if done, err := isMounted(target); err != nil {
		return err
	} else if done {
		return s.show() // an earlier process may have died before it
	}
	if p.Layers != nil {
		if err := s.owners.mountOverlay(target, s.path("layers"), *p.Layers, ownerMap{uid: p.UID, gid: p.GID, to: s.HostUID()}, readOnly); err != nil {
			return err
		}
		return s.show()
	}
	if !filepath.IsAbs(p.Path) {
		return fault.New(fault.Internal, "the prepared workspace has no absolute path")
	}
	tree, err := s.owners.idMapped(p.Path, ownerMap{p.UID, p.GID, s.HostUID(), s.maker()}, readOnly)
	if err != nil {
		return err
	}
	if err := attach(tree, target); err != nil {
		return err
	}
	return s.show()
}

// WriteSecrets puts credentials at /run/secrets, readable by the payload only and in memory only.
// They replace files of the same names.
func (s *Sandbox) WriteSecrets(files []secrets.File) error {
	if len(files) == 0 {
		return nil
	}
	root, err := os.OpenRoot(s.secrets())
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range files {
		if f.Name != filepath.Base(f.Name) || f.Name == "." || f.Name == ".." || f.Name == "" {
			return fault.New(fault.Invalid, "a secret's file can't be named %q", f.Name)
		}
		if err := s.writeSecret(root, f); err != nil {
			// Not wrapped: the cause of a failed write must not carry what was written.
			return fault.Wrap(errors.Unwrap(err), fault.Unavailable, "secret %s can't be delivered", f.Name)
		}
	}
	return nil
}

func (s *Sandbox) writeSecret(root *os.Root, f secrets.File) error {
	tmp := "." + f.Name
	if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w, err := root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if err != nil {
		return err
	}
	_, err = w.Write(f.Value)
	if err = errors.Join(err, w.Chown(int(s.HostUID()), int(s.HostUID())), w.Close()); err != nil {
		return err
	}
	return root.Rename(tmp, f.Name)
}

// secrets is the node's side of SecretsPath.
func (s *Sandbox) secrets() string { return s.path("memory", "secrets") }

// Keep remembers b as long as the sandbox is there, in memory only and out of its reach: what this
// process must know of it again after a restart. It replaces what was kept before.
func (s *Sandbox) Keep(b []byte) error {
	tmp := s.path("memory", ".kept")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, s.path("memory", "kept"))
}

// Kept gives it back; nothing was kept: fs.ErrNotExist.
func (s *Sandbox) Kept() ([]byte, error) { return os.ReadFile(s.path("memory", "kept")) }

// WriteInput puts b at InputPath.
func (s *Sandbox) WriteInput(b []byte) error {
	tmp, path := s.path("input", ".input"), s.path("input", filepath.Base(InputPath))
	if err := os.WriteFile(tmp, b, 0o444); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Stop ends every process of the sandbox, and takes the workspace off it: what was written there is
// complete now and nobody is in its way. The sandbox itself, which runs nothing any more, is left to Destroy.
func (s *Sandbox) Stop(ctx context.Context) error {
	s.destroy.Lock()
	defer s.destroy.Unlock()
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	if err := s.group.Kill(ctx); err != nil {
		return err
	}
	err := unix.Unmount(s.workspace(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // nothing is mounted there
	}
	return err
}

// Pause freezes every process of the sandbox where it is. It does without containerd.
func (s *Sandbox) Pause(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	return s.group.Freeze(ctx)
}

// Resume thaws them.
func (s *Sandbox) Resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	return s.group.Thaw(ctx)
}

// Paused reports whether it is frozen.
func (s *Sandbox) Paused() (bool, error) { return s.group.Frozen() }

// Stats is what the sandbox uses and has used.
func (s *Sandbox) Stats() (cgroup.Usage, error) {
	u, err := s.group.Usage()
	if errors.Is(err, fs.ErrNotExist) {
		return u, fault.New(fault.NotFound, "sandbox %s has ended", s.spec.ID)
	}
	return u, err
}

// OutOfMemory reports whether the kernel has killed something in the sandbox for want of memory.
func (s *Sandbox) OutOfMemory() bool {
	u, err := s.group.Usage()
	return err == nil && u.OOMKills > 0
}

// WaitConnected waits until process 1 has connected, or has ended.
func (s *Sandbox) WaitConnected(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	connected := make(chan error, 1)
	go func() { connected <- s.channel.WaitConnected(ctx) }()
	select {
	case err := <-connected:
		return err
	case <-s.gone:
		cancel()
		<-connected
		return s.endedAtStart()
	}
}

func (s *Sandbox) endedAtStart() error {
	return fault.Wrap(fmt.Errorf("it said: %s", s.lastWords()), fault.Unavailable, "the sandbox's process 1 ended at its start")
}

// lastWords is the end of what process 1 wrote to its standard outputs.
func (s *Sandbox) lastWords() string {
	b, err := os.ReadFile(s.path("init.log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2048):])
}

// Uptime since it was claimed, or, if it was made for somebody or waits, since process 1 was started.
func (s *Sandbox) Uptime() time.Duration {
	if st, err := os.Stat(s.path(recordFile)); err == nil {
		return time.Since(st.ModTime())
	}
	if st, err := os.Stat(s.path("ns", "user")); err == nil {
		return time.Since(st.ModTime())
	}
	return 0
}
