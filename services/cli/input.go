package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/weftmesh/weft/pkg/fault"
)

// maxInput bounds what is read into memory from stdin or a file.
const maxInput = 8 << 20

// read gives the content of a file, "-" for stdin.
func (a *app) read(path string) ([]byte, error) {
	r := a.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fault.Wrap(err, fault.NotFound, "it can't be read")
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "%s can't be read", path)
	}
	if len(b) > maxInput {
		return nil, fault.New(fault.Invalid, "%s is larger than %s; put it into a file of the workspace", path, size(maxInput))
	}
	return b, nil
}

// value reads a JSON value from a flag: the value itself, @file, or - for stdin.
func (a *app) value(flag, s string) (json.RawMessage, error) {
	b := []byte(s)
	var err error
	switch {
	case s == "":
		return nil, nil
	case s == "-":
		b, err = a.read("-")
	case s[0] == '@':
		b, err = a.read(s[1:])
	}
	if err != nil {
		return nil, err
	}
	if !json.Valid(b) {
		return nil, fault.New(fault.Invalid, "--%s is not JSON; text takes quotes, as '\"text\"'", flag)
	}
	return json.RawMessage(strings.TrimSpace(string(b))), nil
}

// confirm asks a person before something that can't be undone. Without a terminal only yes will do.
func (a *app) confirm(yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	if !isTerminal(a.in) || !isTerminal(a.err) {
		return fault.New(fault.Invalid, "this can't be undone; say --yes")
	}
	fmt.Fprintf(a.err, format+" [y/N] ", args...)
	s, _ := bufio.NewReader(a.in).ReadString('\n')
	if s = strings.ToLower(strings.TrimSpace(s)); s == "y" || s == "yes" {
		return nil
	}
	return fault.New(fault.Invalid, "nothing was done")
}

// secretInput reads a secret: typed without an echo on a terminal, else all of stdin. One trailing
// newline is not part of it.
func (a *app) secretInput(prompt string) (string, error) {
	f, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		b, err := a.read("-")
		return strings.TrimSuffix(string(b), "\n"), err
	}
	fmt.Fprint(a.err, prompt)
	b, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(a.err)
	return string(b), err
}

// pairs reads NAME=value flags into a map.
func pairs(flag string, in []string) (map[string]string, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, p := range in {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, fault.New(fault.Invalid, "--%s %q must have the form NAME=value", flag, p)
		}
		out[k] = v
	}
	return out, nil
}

// since reads a point in time: a duration ago, or RFC 3339.
func since(flag, s string) (*time.Time, error) {
	if s == "" {
		return nil, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		t := time.Now().Add(-d).UTC()
		return &t, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil, fault.New(fault.Invalid, "--%s %q must be a duration ago, as 10m, or a time, as 2026-01-31T08:00:00Z", flag, s)
	}
	return &t, nil
}

// bytesValue is a flag for a number of bytes, as 512MiB or 1048576.
type bytesValue int64

var units = []struct {
	suffix string
	factor int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"B", 1}}

func (b *bytesValue) Set(s string) error {
	n, factor := s, int64(1)
	for _, u := range units {
		if v, ok := strings.CutSuffix(s, u.suffix); ok {
			n, factor = v, u.factor
			break
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
	if err != nil || v < 0 || v*float64(factor) > 1<<60 {
		return fmt.Errorf("%q is not a size, as 512MiB", s)
	}
	*b = bytesValue(v * float64(factor))
	return nil
}

func (b *bytesValue) String() string {
	if *b == 0 {
		return ""
	}
	return size(int64(*b))
}

func (b *bytesValue) Type() string { return "size" }

// limit shows a number of which 0 means the default.
func limit(n int) string {
	if n == 0 {
		return "default"
	}
	return strconv.Itoa(n)
}
