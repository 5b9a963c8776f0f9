package memory

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
)

// The checks of this file give faults with code invalid, in sentences that name the field.

func invalid(format string, args ...any) error { return fault.New(fault.Invalid, format, args...) }

// checkText refuses an item's text that is empty, too long, or no text.
func (s *Service) checkText(text string) error {
	if strings.TrimSpace(text) == "" {
		return invalid("text is empty")
	}
	return checkString("text", text, s.limits.Text)
}

func checkString(field, v string, most int) error {
	switch {
	case len(v) > most:
		return invalid("%s has %d bytes, at most %d are allowed: keep what is long in a file and remember where it is", field, len(v), most)
	case !utf8.ValidString(v):
		return invalid("%s is not valid UTF-8", field)
	case strings.ContainsRune(v, 0):
		return invalid("%s contains a NUL character", field)
	}
	return nil
}

// checkLabel refuses a key or a tag that is empty, too long, or hard to type again.
func checkLabel(field, v string, most int) error {
	switch {
	case v == "":
		return invalid("%s is empty", field)
	case len(v) > most:
		return invalid("%s has %d bytes, at most %d are allowed", field, len(v), most)
	case !utf8.ValidString(v):
		return invalid("%s is not valid UTF-8", field)
	case strings.TrimSpace(v) != v:
		return invalid("%s %q begins or ends with white space", field, v)
	case strings.ContainsFunc(v, unicode.IsControl):
		return invalid("%s %q has a control character", field, v)
	}
	return nil
}

func checkKey(key string) error { return checkLabel("key", key, memory.MaxKey) }

// checkTags gives the tags sorted and each once.
func checkTags(tags []string) ([]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	if len(tags) > memory.MaxTags {
		return nil, invalid("there are %d tags, at most %d are allowed", len(tags), memory.MaxTags)
	}
	for _, t := range tags {
		if err := checkLabel("a tag", t, memory.MaxTag); err != nil {
			return nil, err
		}
	}
	tags = slices.Clone(tags)
	slices.Sort(tags)
	return slices.Compact(tags), nil
}

// checkData gives data in compact form.
func checkData(data json.RawMessage) (json.RawMessage, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	var b bytes.Buffer
	switch err := json.Compact(&b, data); {
	case err != nil:
		return nil, invalid("data is malformed JSON: %v", err)
	case data[0] != '{':
		return nil, invalid("data must be a JSON object")
	case b.Len() > memory.MaxData:
		return nil, invalid("data has %d bytes, at most %d are allowed", b.Len(), memory.MaxData)
	case !utf8.Valid(b.Bytes()):
		return nil, invalid("data is not valid UTF-8")
	}
	return b.Bytes(), nil
}

func checkKinds(kinds []memory.Kind) error {
	if len(kinds) > 3 {
		return invalid("there are %d kinds, and only 3 to name", len(kinds))
	}
	for _, k := range kinds {
		if !k.Valid() {
			return invalid("kind %q must be episodic, semantic or procedural", clip(string(k)))
		}
	}
	return nil
}

func checkSource(task string, attempt int) error {
	if task != "" {
		if err := schemas.CheckID("task", task); err != nil {
			return invalid("%v", err)
		}
	}
	if attempt < 0 || attempt > 0 && task == "" {
		return invalid("attempt %d: it must be positive, and belongs to a task", attempt)
	}
	return nil
}

func checkItemID(id string) error {
	if err := schemas.CheckID("id", id); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// checkValidFrom gives since when an item is valid: t, or now.
func checkValidFrom(t *time.Time, now time.Time) (time.Time, error) {
	if t == nil {
		return now, nil
	}
	at := t.UTC().Truncate(time.Microsecond)
	if at.After(now) {
		return now, invalid("valid_from %s is in the future", at.Format(time.RFC3339))
	}
	return at, nil
}

// limitOf gives how many items a page has.
func limitOf(limit, usual int) (int, error) {
	if limit == 0 {
		return usual, nil
	}
	if limit < 0 || limit > memory.MaxLimit {
		return 0, invalid("limit %d must be 1 to %d", limit, memory.MaxLimit)
	}
	return limit, nil
}

// timeOf gives t for the store, where the zero time means that none is given.
func timeOf(t *time.Time) time.Time {
	switch {
	case t == nil:
		return time.Time{}
	case t.IsZero():
		return t.Add(time.Microsecond)
	}
	return t.UTC()
}

// clip shortens what a caller sent for an error sentence.
func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
