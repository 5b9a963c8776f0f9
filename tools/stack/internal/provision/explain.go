package provision

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Advice is what a person is told about a failure: what can't be had and why, and what to do.
type Advice struct{ What, Do string }

// symptoms are what commands print when something outside of us is wrong.
var symptoms = []struct {
	signs []string
	why   string
	do    string
}{
	{[]string{"no space left on device", "disk quota exceeded"},
		"the disk is full", "free about 6 GB where the cache (WEFT_CACHE) and Go's caches (go env GOCACHE GOMODCACHE) are"},
	{[]string{"signal: killed", "cannot allocate memory", "out of memory"},
		"the machine ran out of memory", "give it 4 GB, or close what else runs"},
	{[]string{"temporary failure resolving", "could not resolve", "no such host", "dial tcp", "i/o timeout", "connection refused", "tls handshake timeout", "network is unreachable", "could not connect to"},
		"the network, or the server that packages come from, can't be reached", "check the network and the proxy settings (go env GOPROXY; apt's Acquire::http::Proxy)"},
	{[]string{"lookup disabled by goproxy=off"},
		"Go may not download modules", "allow it (go env GOPROXY says off)"},
	{[]string{"verifying module", "checksum mismatch", "security error"},
		"a module's checksum is not the expected one", "check that GOPROXY serves unaltered modules (go env GOPROXY GOSUMDB)"},
	{[]string{"unable to locate package", "has no installation candidate"},
		"the package sources of this machine don't have it", "add Debian's main component to /etc/apt/sources.list.d, then run apt-get update"},
	{[]string{"could not get lock", "unable to acquire the dpkg"},
		"another package manager is at work", "wait until it has finished"},
	{[]string{"requires go >=", "toolchain not available"},
		"this Go is too old", "install the Go that go.work names, or allow toolchains (go env -w GOTOOLCHAIN=auto)"},
	{[]string{"\"gcc\": executable file not found", "c compiler \"gcc\" not found", "pkg-config: not found"},
		"there is no C compiler", "apt-get install -y gcc libc6-dev libseccomp-dev pkg-config"},
}

// Explain turns a failed or skipped result into sentences. again is the command to type afterwards.
func Explain(r Result, again string) Advice {
	stage := r.Stage
	if r.Outcome == Skipped {
		return Advice{What: fmt.Sprintf("%s was not tried, because %v.", stage.What, r.Err), Do: "see above"}
	}
	why, do := diagnose(r)
	what := fmt.Sprintf("%s can't be had: %s.", stage.What, why)
	if stage.Lost != "" {
		what += " Without it " + stage.Lost + "."
	}
	do += ", then run " + again + " again"
	if stage.Remedy != "" {
		do += "; or " + stage.Remedy
	}
	return Advice{What: what, Do: do + "."}
}

// Plain is an error that says itself what to do.
type Plain struct{ Why, Do string }

func (p *Plain) Error() string { return p.Why }

func diagnose(r Result) (why, do string) {
	var plain *Plain
	if errors.As(r.Err, &plain) {
		return plain.Why, plain.Do
	}
	if errors.Is(r.Err, os.ErrPermission) {
		return fmt.Sprint(r.Err), "make the cache writable, or set WEFT_CACHE to a directory that is"
	}
	if errors.Is(r.Err, syscall.ENOSPC) {
		return symptoms[0].why, symptoms[0].do
	}
	text := strings.ToLower(strings.Join(append(Tail(r.Log, 40), fmt.Sprint(r.Err)), "\n"))
	for _, s := range symptoms {
		for _, sign := range s.signs {
			if strings.Contains(text, sign) {
				return s.why, s.do
			}
		}
	}
	why = fmt.Sprint(r.Err)
	if r.Log != "" {
		return why, "read " + r.Log
	}
	return why, "correct that"
}
