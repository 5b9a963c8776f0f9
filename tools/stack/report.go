package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/weftmesh/weft/tools/stack/internal/provision"
)

// line is what -json prints of a thing. Fields are only ever added.
type line struct {
	Name    string  `json:"name"`
	What    string  `json:"what"`
	Version string  `json:"version,omitempty"`
	Outcome string  `json:"outcome"` // cached, installed, made, failed, skipped; missing in a list
	Where   string  `json:"where,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"`
	Seconds float64 `json:"seconds,omitempty"` // that making it took
	Error   string  `json:"error,omitempty"`
	Log     string  `json:"log,omitempty"`
}

// report prints what there is, as a table or as JSON lines.
func report(out io.Writer, asJSON bool, results []provision.Result) {
	if asJSON {
		encoder := json.NewEncoder(out)
		for _, r := range results {
			l := line{Name: r.Stage.Name, What: r.Stage.What, Version: r.Stage.Version, Outcome: string(r.Outcome),
				Where: r.Where, Bytes: r.Size, Seconds: r.Took.Seconds(), Log: r.Log}
			if r.Outcome == "" {
				l.Outcome = "missing"
			}
			if r.Err != nil {
				l.Error = r.Err.Error()
			}
			_ = encoder.Encode(l)
		}
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tVERSION\tSIZE\tWHERE")
	for _, r := range results {
		where, version := tilde(r.Where), r.Stage.Version
		switch r.Outcome {
		case provision.Installed:
			if version != "" {
				version = "the machine's"
			}
		case provision.Cached:
		default:
			where = "missing; `make setup` gets it"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Stage.Name, orDash(version), size(r), where)
	}
	_ = w.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// size is that of all files of an artifact, in MB of a million bytes.
func size(r provision.Result) string {
	bytes := r.Size
	if bytes == 0 && r.Outcome == provision.Installed {
		if info, err := os.Stat(r.Where); err == nil {
			bytes = info.Size()
		}
	}
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
}
