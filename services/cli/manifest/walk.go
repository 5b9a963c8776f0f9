package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxProblems bounds how many fields one error names.
const maxProblems = 20

// reader collects what is wrong with a document and what has no effect, so that a person sees all of it at once.
type reader struct {
	problems []string
	whys     []string            // reasons of notes, in the order they came
	ignored  map[string][]string // paths by reason
}

func (r *reader) refuse(path, format string, args ...any) {
	r.problems = append(r.problems, path+": "+fmt.Sprintf(format, args...))
}

// note says that a field has no effect, and why.
func (r *reader) note(path, why string) {
	if r.ignored == nil {
		r.ignored = map[string][]string{}
	}
	if r.ignored[why] == nil {
		r.whys = append(r.whys, why)
	}
	r.ignored[why] = append(r.ignored[why], path)
}

// said gives the notes, one for each reason.
func (r *reader) said() (out []string) {
	for _, why := range r.whys {
		out = append(out, strings.Join(r.ignored[why], ", ")+": "+why)
	}
	return out
}

func (r *reader) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	ps := slices.Clone(r.problems)
	if more := len(ps) - maxProblems; more > 0 {
		ps = append(ps[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(ps, "\n  "))
}

// object is a JSON object of which fields are taken one by one; done refuses what is left.
type object struct {
	r    *reader
	path string
	m    map[string]any
}

func (o object) at(key string) string {
	if o.path == "" {
		return key
	}
	return o.path + "." + key
}

// take gives a field and removes it. Null is as if it were not there.
func (o object) take(key string) any {
	v := o.m[key]
	delete(o.m, key)
	return v
}

func (o object) text(key string) string {
	v := o.take(key)
	s, ok := v.(string)
	if v != nil && !ok {
		o.r.refuse(o.at(key), "it must be a text")
	}
	return s
}

// number gives a whole number; given is false where there is none.
func (o object) number(key string) (n int64, given bool) {
	switch v := o.take(key).(type) {
	case nil:
		return 0, false
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i, true
		}
	}
	o.r.refuse(o.at(key), "it must be a whole number")
	return 0, false
}

func (o object) flag(key string) (is, given bool) {
	v := o.take(key)
	is, ok := v.(bool)
	if v != nil && !ok {
		o.r.refuse(o.at(key), "it must be true or false")
	}
	return is, ok
}

// child gives an object within; an empty one where there is none.
func (o object) child(key string) object {
	return o.r.object(o.at(key), o.take(key))
}

func (r *reader) object(path string, v any) object {
	m, ok := v.(map[string]any)
	if v != nil && !ok {
		r.refuse(path, "it must be an object")
	}
	return object{r: r, path: path, m: m}
}

// children gives the objects of a list within.
func (o object) children(key string) (out []object) {
	v := o.take(key)
	l, ok := v.([]any)
	if v != nil && !ok {
		o.r.refuse(o.at(key), "it must be a list")
	}
	for i, x := range l {
		out = append(out, o.r.object(fmt.Sprintf("%s[%d]", o.at(key), i), x))
	}
	return out
}

// texts gives a list of texts.
func (o object) texts(key string) (out []string) {
	v := o.take(key)
	l, ok := v.([]any)
	if v != nil && !ok {
		o.r.refuse(o.at(key), "it must be a list")
	}
	for i, x := range l {
		s, ok := x.(string)
		if !ok {
			o.r.refuse(fmt.Sprintf("%s[%d]", o.at(key), i), "it must be a text")
		}
		out = append(out, s)
	}
	return out
}

// ignore notes those of the fields that are there and say something.
func (o object) ignore(why string, keys ...string) {
	for _, k := range keys {
		if v := o.take(k); !empty(v) {
			o.r.note(o.at(k), why)
		}
	}
}

// forbid refuses those of the fields that are there and say something: an empty list or false asks for nothing.
func (o object) forbid(why string, keys ...string) {
	for _, k := range keys {
		if v := o.take(k); !empty(v) {
			o.r.refuse(o.at(k), "%s", why)
		}
	}
}

// done refuses the fields that nobody took.
func (o object) done() {
	var left []string
	for k, v := range o.m {
		if v != nil {
			left = append(left, k)
		}
	}
	slices.Sort(left)
	for _, k := range left {
		o.r.refuse(o.at(clip(k)), "Weft does not know this field, so it can't honour it")
	}
}

func empty(v any) bool {
	switch x := v.(type) {
	case nil:
		return true
	case bool:
		return !x
	case string:
		return x == ""
	case []any:
		return len(x) == 0
	case map[string]any:
		return len(x) == 0
	}
	return false
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
