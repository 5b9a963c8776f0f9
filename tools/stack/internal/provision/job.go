package provision

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Job is one stage being made: where to put files, and where output goes.
type Job struct {
	Dir string // fresh, on the store's file system, removed at the end
	log *logFile
}

// end removes what is left of the job but its log.
func (j *Job) end() {
	_ = os.RemoveAll(j.Dir)
	_ = j.log.file.Close()
}

// grace is how long a command may take to end after it was told to.
const grace = 20 * time.Second

// Run runs a command, with its output in the job's log. The command gets a process group of its
// own, so that everything it started ends with it when ctx is done.
func (j *Job) Run(ctx context.Context, cmd *exec.Cmd) error {
	fmt.Fprintf(j.log, "$ %s\n", typed(cmd.Args))
	cmd.Stdout, cmd.Stderr = j.log, j.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return named(cmd, err)
	case <-ctx.Done():
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-done:
	case <-time.After(grace):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
	return ctx.Err()
}

// typed shows a command as one would type it.
func typed(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = arg
		if arg == "" || strings.ContainsAny(arg, " \t\n'\"$;&|<>*?()") {
			quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

func named(cmd *exec.Cmd, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
}

// Logf adds a line to the job's log, which is also what people see it doing.
func (j *Job) Logf(format string, args ...any) { fmt.Fprintf(j.log, format+"\n", args...) }

// Log is where other programs' output goes.
func (j *Job) Log() io.Writer { return j.log }

// Said reports whether a command printed text, within the last lines of the log.
func (j *Job) Said(text string) bool {
	return strings.Contains(strings.Join(Tail(j.log.path, 20), "\n"), text)
}

// logFile is a log that remembers its last line.
type logFile struct {
	path string
	file *os.File
	mu   sync.Mutex
	line []byte // unfinished
	last string
}

func newLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &logFile{path: path, file: f}, nil
}

// Write is called by the goroutines that copy a command's output.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = append(l.line, p...)
	for {
		i := bytes.IndexAny(l.line, "\r\n")
		if i < 0 {
			break
		}
		if text := strings.TrimSpace(string(l.line[:i])); text != "" {
			l.last = text
		}
		l.line = l.line[i+1:]
	}
	if len(l.line) > 4096 { // a line that never ends is of no interest to anyone
		l.line = nil
	}
	return l.file.Write(p)
}

// lastLine is what the command said last.
func (l *logFile) lastLine() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Tail returns the last n lines of a log that are not empty.
func Tail(path string, n int) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimRight(line, " \r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-n):]
}
