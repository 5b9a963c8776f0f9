// Package submission reads what people and agents send to the task plane, and resolves it with the
// agent and the template that it names into what a node runs. Everything in it is pure: a foreign
// body in, a checked value or a sentence out.
package submission

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/weftmesh/weft/schemas/workspace"
)

// ErrUndecodable is what is no JSON object at all: it can't even be recorded as rejected.
var ErrUndecodable = errors.New("the body is not a JSON object")

// Decode reads a submission. Unknown fields are tolerated. Where err is ErrUndecodable nothing could be
// read; any other err is a sentence for the sender, and the fields that were right are in the result.
func Decode(body []byte) (workspace.Submission, error) {
	var s workspace.Submission
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return s, fmt.Errorf("%w: %v", ErrUndecodable, err)
	}
	if raw == nil { // the JSON value null
		return s, ErrUndecodable
	}
	var problem error
	keep := func(err error) {
		if problem == nil {
			problem = err
		}
	}
	if !utf8.Valid(body) {
		keep(errors.New("the body is not valid UTF-8"))
	}
	for _, f := range fields(&s) {
		v, ok := raw[f.name]
		if !ok || string(v) == "null" {
			continue
		}
		if err := json.Unmarshal(v, f.into); err != nil {
			keep(typeError(f.name, err))
			reflect.ValueOf(f.into).Elem().SetZero()
		}
	}
	if !utf8.Valid(s.Input) {
		s.Input = json.RawMessage(strings.ToValidUTF8(string(s.Input), "\ufffd"))
	}
	return s, problem
}

type field struct {
	name string
	into any
}

// fields pairs each name on the wire with where it goes, so that one wrong type does not hide the rest.
func fields(s *workspace.Submission) []field {
	return []field{
		{"agent", &s.Agent}, {"template", &s.Template}, {"level", &s.Level}, {"command", &s.Command}, {"input", &s.Input},
		{"env", &s.Env}, {"priority", &s.Priority}, {"timeout_ms", &s.TimeoutMS}, {"max_attempts", &s.MaxAttempts},
		{"labels", &s.Labels}, {"group", &s.Group}, {"parent", &s.Parent}, {"depth", &s.Depth},
	}
}

// typeError names the field and both types, as a person says them.
func typeError(name string, err error) error {
	var te *json.UnmarshalTypeError
	if !errors.As(err, &te) {
		return fmt.Errorf("field %q could not be read: %v", name, err)
	}
	if te.Field != "" {
		name += "." + te.Field
	}
	got := te.Value
	if strings.HasPrefix(got, "number ") {
		got = "the " + got
	} else if got == "array" || got == "object" {
		got = "an " + got
	} else {
		got = "a " + got
	}
	return fmt.Errorf("field %q must be %s, not %s", name, typeName(te.Type), got)
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list of strings"
	case reflect.Map:
		return "an object of strings"
	}
	return "an object"
}
