package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/secrets"
)

// Report is what the show reads of report.json, which the reviewer writes.
type Report struct {
	Pass    int            `json:"pass"`
	Files   int            `json:"files"`
	Lines   int            `json:"lines"`
	Folders map[string]int `json:"folders"` // lines
	Sample  struct {
		Recounted int      `json:"recounted"`
		Differ    []string `json:"differ"`
	} `json:"sample"`
	Changed []Changed `json:"changed"`
	Added   []string  `json:"added"`
	Removed []string  `json:"removed"`
}

// Changed is a file that is not as it was at the pass before.
type Changed struct {
	Path        string `json:"path"`
	LinesBefore int    `json:"lines_before"`
	Lines       int    `json:"lines"`
}

// Names of the report's files in the workspace, and of what signs it.
const (
	reportDir  = "report"
	reportFile = "report.json"
	sigFile    = "report.json.sig"
	reportKey  = "report-key"
)

// reportFiles are all of them.
var reportFiles = []string{reportFile, sigFile, "report.md", "chart.svg"}

// fetchReport copies the report out of the workspace's head into the output directory, and reads it.
func (s *show) fetchReport(ctx context.Context, pass *Pass) (body []byte, signature string, err error) {
	dir := filepath.Join(s.o.Output, fmt.Sprintf("pass-%d", pass.Number))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	for _, name := range reportFiles {
		var b bytes.Buffer
		if _, err := s.c.GetFile(ctx, filesystem.GetRequest{Path: reportDir + "/" + name}, &b); err != nil {
			return nil, "", fmt.Errorf("%s/%s: %w", reportDir, name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			return nil, "", err
		}
		switch name {
		case reportFile:
			body = b.Bytes()
		case sigFile:
			signature = strings.TrimSpace(b.String())
		}
	}
	if err := json.Unmarshal(body, &pass.Report); err != nil {
		return nil, "", fmt.Errorf("%s/%s: %w", reportDir, reportFile, err)
	}
	return body, signature, nil
}

// judgeReport checks a pass's report: that its figures are those that the show counts by itself, and
// that its signature holds, and does not when a byte of it is another.
func (s *show) judgeReport(ctx context.Context, pass *Pass, files, lines int) error {
	body, signature, err := s.fetchReport(ctx, pass)
	if err != nil {
		return err
	}
	r := &pass.Report
	s.check(r.Pass == pass.Number && r.Files == files && r.Lines == lines, "the report has the figures that the show counts itself",
		"%d files and %d lines, counted %d and %d", r.Files, r.Lines, files, lines)
	s.check(len(r.Folders) == len(s.inv.Tops), "the reviewer found the findings of every analyst in the head", "%d of %d", len(r.Folders), len(s.inv.Tops))
	s.check(r.Sample.Recounted > 0 && len(r.Sample.Differ) == 0, "the files that the reviewer counted again are right", "%d of %d differ", len(r.Sample.Differ), r.Sample.Recounted)
	ok, err := s.verify(ctx, body, signature)
	if err != nil {
		return err
	}
	s.check(ok, "the report's signature holds", "%s", clip(signature, 40))
	forged := tamper(body)
	ok, err = s.verify(ctx, forged, signature)
	if err != nil {
		return err
	}
	s.check(!ok, "a report with one byte changed fails verification", "%s", difference(body, forged))
	return nil
}

func (s *show) verify(ctx context.Context, body []byte, signature string) (bool, error) {
	return s.c.VerifySignature(ctx, secrets.VerifyRequest{Name: reportKey, Data: body, Signature: signature})
}

// tamper changes one byte: a figure, as somebody would who wants a nicer report.
func tamper(body []byte) []byte {
	out := bytes.Clone(body)
	i := bytes.Index(out, []byte(`"lines": `)) + len(`"lines": `)
	if i >= len(out) {
		i = 0
	}
	if out[i] == '1' {
		out[i] = '2'
	} else {
		out[i] = '1'
	}
	return out
}

// difference says which byte is another.
func difference(a, b []byte) string {
	for i := range a {
		if a[i] != b[i] {
			return fmt.Sprintf("byte %d is %q instead of %q", i, b[i], a[i])
		}
	}
	return "nothing is changed"
}

// judgeChanges checks that the second report names exactly the edited files, with the right figures.
func (s *show) judgeChanges(r Report) {
	want := make([]Changed, 0, len(s.res.Edits))
	for _, e := range s.res.Edits {
		want = append(want, Changed{e.Path, e.Before, e.After})
	}
	detail := make([]string, 0, len(r.Changed))
	for _, c := range r.Changed {
		detail = append(detail, fmt.Sprintf("%s %d → %d lines", c.Path, c.LinesBefore, c.Lines))
	}
	s.check(slices.Equal(r.Changed, want), fmt.Sprintf("memory makes the report name exactly the %d edited files, and what changed in the figures", len(want)),
		"%s", strings.Join(detail, "; "))
	s.check(len(r.Added) == 0 && len(r.Removed) == 0, "and nothing as new or gone", "%d new, %d gone", len(r.Added), len(r.Removed))
}
