package bao

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Names of files in the server's directory, see the package's doc.
const (
	aliveFile   = "alive.lock"
	processFile = "process.json"
	configFile  = "server.hcl"
	keysFile    = "keys.json"
	initFile    = "initialising" // there while a first start may be half done
	socketFile  = "bao.sock"
	raftDir     = "raft"
	auditFile   = "audit.log"
	logFile     = "server.log"
)

const (
	maxLog    = 8 << 20  // bytes of server.log, after which a start begins a new one
	maxAudit  = 64 << 20 // bytes of audit.log, after which it is rotated
	keptAudit = 8        // rotated audit logs
)

// replaceFile writes a file of mode 0600 so that after a crash it is either whole or as it was.
func replaceFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // CreateTemp makes it 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// openLog opens server.log for appending; a large one is kept as server.log.1.
func (s *Server) openLog() (*os.File, error) {
	path := s.path(logFile)
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(s.path(raftDir), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// lastWords is the end of server.log, for the log of a start that failed.
func (s *Server) lastWords() string {
	f, err := os.Open(s.path(logFile))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const tail = 2048
	if st, err := f.Stat(); err == nil && st.Size() > tail {
		_, _ = f.Seek(-tail, io.SeekEnd)
	}
	b, _ := io.ReadAll(f)
	return string(b)
}

// rotateAudit begins a new audit log when the present one is large: audit.log.1 is the youngest old one.
func (s *Server) rotateAudit() {
	path := s.path(auditFile)
	if st, err := os.Stat(path); err != nil || st.Size() < maxAudit {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return
	}
	for i := keptAudit; i > 1; i-- {
		_ = os.Rename(fmt.Sprintf("%s.%d", path, i-1), fmt.Sprintf("%s.%d", path, i))
	}
	if err := os.Rename(path, path+".1"); err != nil {
		s.log.Error("OpenBao's audit log was not rotated", "err", err)
		return
	}
	// It opens its files anew on this signal.
	if err := unix.PidfdSendSignal(s.proc.fd, unix.SIGHUP, nil, 0); err != nil {
		s.log.Error("OpenBao's audit log was not rotated", "err", err)
	}
}
