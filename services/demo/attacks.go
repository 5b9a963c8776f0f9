package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Attack is one thing that the misbehaving analyst tried, as it printed it.
type Attack struct {
	Kind    string `json:"attack"`
	What    string `json:"what"`
	Refused bool   `json:"refused"`
	Code    string `json:"code"`
	Said    string `json:"said"`
}

// parseAttack reads a line of the misbehaving analyst's output.
func parseAttack(line string) (Attack, bool) {
	var a Attack
	if !strings.HasPrefix(line, `{"attack"`) || json.Unmarshal([]byte(line), &a) != nil {
		return a, false
	}
	return a, true
}

// line is the attack for a person.
func (a Attack) line() string {
	if !a.Refused {
		return fmt.Sprintf("tries to %s: NOT REFUSED, got %s", a.What, a.Said)
	}
	return fmt.Sprintf("tries to %s: refused (%s)", a.What, a.Code)
}

// refusals are the codes that count as a refusal of each kind of attack. What an error of the mesh, as
// unavailable, hides is not known to be refused. Every kind must have been tried.
var refusals = map[string][]string{
	"secret":    {"denied", "closed", "ENOENT", "EACCES"},
	"sender":    {"denied"},
	"workspace": {"denied"},
	"record":    {"denied"},
	"host":      {"EACCES", "EPERM", "ENOENT"},
	"network":   {"ENETUNREACH", "EHOSTUNREACH", "ECONNREFUSED", "EACCES", "EPERM"},
}

// held reports whether an attack was refused, and for a reason that counts.
func (a Attack) held() bool {
	codes := strings.Fields(a.Code)
	return a.Refused && len(codes) > 0 && !slices.ContainsFunc(codes, func(c string) bool { return !slices.Contains(refusals[a.Kind], c) })
}

// untried gives the kinds of attack that are not among as.
func untried(as []Attack) []string {
	var out []string
	for kind := range refusals {
		if !slices.ContainsFunc(as, func(a Attack) bool { return a.Kind == kind }) {
			out = append(out, kind)
		}
	}
	slices.Sort(out)
	return out
}

// attackTable is what was tried and what came of it.
func attackTable(as []Attack) []string {
	rows := make([][]string, 0, len(as))
	for _, a := range as {
		code := a.Code
		if !a.held() {
			code = strings.TrimSpace("NOT REFUSED " + code)
		}
		rows = append(rows, []string{a.What, code, a.Said})
	}
	return table([]string{"IT TRIED TO", "REFUSED WITH", "IN THESE WORDS"}, rows)
}
