package submission

import (
	"fmt"
	"strings"
	"time"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Limits of a submission and of the definitions that share its fields.
const (
	MaxArgs     = 1024
	MaxArgBytes = 128 << 10 // of all arguments together, what a kernel takes in any case
	MaxEnv      = 256
	MaxEnvBytes = 128 << 10
	MaxLabels   = 64
	MaxTimeout  = 7 * 24 * time.Hour
	MaxAttempts = 20
	MaxGroup    = 10_000
)

// Check refuses what can never run, with a sentence that names the field.
func Check(s *workspace.Submission) error {
	if s.Agent == "" && (s.Template == "" || len(s.Command) == 0) {
		return fmt.Errorf(`name an "agent", or a "template" with a "command"`)
	}
	if s.Agent != "" && s.Template != "" {
		return fmt.Errorf(`name either an "agent" or a "template", not both`)
	}
	for what, name := range map[string]string{"agent": s.Agent, "template": s.Template} {
		if name != "" {
			if err := schemas.CheckName(what, name); err != nil {
				return err
			}
		}
	}
	switch s.Priority {
	case "", workspace.High, workspace.Normal, workspace.Low:
	default:
		return fmt.Errorf(`field "priority" must be high, normal or low, not %q`, clip(string(s.Priority)))
	}
	if err := checkLevel(s.Level); err != nil {
		return err
	}
	if err := CheckTries(s.TimeoutMS, s.MaxAttempts); err != nil {
		return err
	}
	if s.Parent != "" {
		if err := schemas.CheckID("parent", s.Parent); err != nil {
			return err
		}
	}
	if s.Depth < 0 || s.Depth > schemas.MaxDepth {
		return fmt.Errorf(`field "depth" must be 0 to %d, not %d: too many triggers follow one another`, schemas.MaxDepth, s.Depth)
	}
	if err := CheckArgv("command", s.Command); err != nil {
		return err
	}
	if err := CheckEnv(s.Env); err != nil {
		return err
	}
	if err := CheckLabels(s.Labels); err != nil {
		return err
	}
	return CheckGroup(s.Group)
}

// CheckTries checks the bounds that a submission and an agent share.
func CheckTries(timeoutMS int64, attempts int) error {
	if timeoutMS < 0 || timeoutMS > MaxTimeout.Milliseconds() {
		return fmt.Errorf(`field "timeout_ms" must be 0 to %d (7 days), not %d`, MaxTimeout.Milliseconds(), timeoutMS)
	}
	if attempts < 0 || attempts > MaxAttempts {
		return fmt.Errorf(`field "max_attempts" must be 0 to %d, not %d`, MaxAttempts, attempts)
	}
	return nil
}

// CheckArgv refuses arguments that no kernel takes.
func CheckArgv(what string, argv []string) error {
	if len(argv) > MaxArgs {
		return fmt.Errorf("field %q has %d arguments, more than %d", what, len(argv), MaxArgs)
	}
	n := 0
	for i, a := range argv {
		if strings.IndexByte(a, 0) >= 0 {
			return fmt.Errorf("field %q, argument %d: it contains a NUL character", what, i)
		}
		n += len(a) + 1
	}
	if n > MaxArgBytes {
		return fmt.Errorf("field %q is %d bytes long, more than %d: put large data into input or a file", what, n, MaxArgBytes)
	}
	if len(argv) > 0 && argv[0] == "" {
		return fmt.Errorf("field %q must begin with the program to run", what)
	}
	return nil
}

// CheckEnv refuses variables that a shell or kernel could not carry.
func CheckEnv(env map[string]string) error {
	if len(env) > MaxEnv {
		return fmt.Errorf(`field "env" has %d variables, more than %d`, len(env), MaxEnv)
	}
	n := 0
	for k, v := range env {
		if err := CheckEnvName(k); err != nil {
			return err
		}
		if strings.IndexByte(v, 0) >= 0 {
			return fmt.Errorf(`field "env", variable %s: it contains a NUL character`, k)
		}
		n += len(k) + len(v) + 2
	}
	if n > MaxEnvBytes {
		return fmt.Errorf(`field "env" is %d bytes long, more than %d`, n, MaxEnvBytes)
	}
	return nil
}

// CheckEnvName takes letters, digits and underscores, not beginning with a digit.
func CheckEnvName(k string) error {
	ok := k != "" && len(k) <= 256 && (k[0] < '0' || k[0] > '9')
	for i := 0; ok && i < len(k); i++ {
		c := k[i]
		ok = c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
	}
	if !ok {
		return fmt.Errorf(`field "env": %q is not a variable's name (letters, digits and _, not beginning with a digit)`, clip(k))
	}
	return nil
}

// CheckLabels takes keys of 1 to 63 letters, digits and ._/-, and values of at most 256 bytes.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf(`field "labels" has %d labels, more than %d`, len(labels), MaxLabels)
	}
	for k, v := range labels {
		ok := k != "" && len(k) <= 63
		for i := 0; ok && i < len(k); i++ {
			c := k[i]
			ok = strings.IndexByte("._/-", c) >= 0 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
		}
		if !ok {
			return fmt.Errorf(`field "labels": key %q must be 1 to 63 letters, digits and ._/-`, clip(k))
		}
		if len(v) > 256 || !printable(v) {
			return fmt.Errorf(`field "labels": the value of %s must be at most 256 bytes without control characters`, k)
		}
	}
	return nil
}

// CheckGroup checks a group's id and size; nil is no group.
func CheckGroup(g *workspace.Group) error {
	if g == nil {
		return nil
	}
	if err := schemas.CheckKey("group id", g.ID); err != nil {
		return err
	}
	if g.Size < 1 || g.Size > MaxGroup {
		return fmt.Errorf(`field "group.size" must be 1 to %d, not %d`, MaxGroup, g.Size)
	}
	return nil
}

func printable(s string) bool {
	for _, r := range s {
		if r < 0x20 || r == 0x7f {
			return false
		}
	}
	return true
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
