package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
)

// decode reads a spec into a definition, whose name it must not contradict.
func decode[T any](spec any, name string, nameOf func(*T) *string) (*T, error) {
	v := new(T)
	if spec == nil {
		spec = map[string]any{}
	}
	plain, err := normal(spec, reflect.TypeFor[T](), "spec")
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(plain)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return nil, errors.New("spec: " + strings.TrimPrefix(err.Error(), "json: "))
	}
	if n := nameOf(v); *n != "" && *n != name {
		return nil, fmt.Errorf("its spec has another name, %q", clip(*n))
	}
	*nameOf(v) = name
	return v, nil
}

// normal gives a value with the names of T's fields as they are on the wire, and amounts as numbers.
func normal(v any, t reflect.Type, path string) (any, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch x := v.(type) {
	case map[string]any:
		if t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]() {
			return normalStruct(x, t, path)
		}
	case []any:
		if t.Kind() == reflect.Slice && t != reflect.TypeFor[json.RawMessage]() {
			out := make([]any, len(x))
			for i := range x {
				var err error
				if out[i], err = normal(x[i], t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
					return nil, err
				}
			}
			return out, nil
		}
	}
	return v, nil
}

func normalStruct(m map[string]any, t reflect.Type, path string) (any, error) {
	fields := map[string]reflect.Type{}
	wire(t, fields)
	out := map[string]any{}
	for _, k := range sortedKeys(m) {
		name, ok := match(k, fields)
		if !ok {
			return nil, unknown(path, k, sortedKeys(fields))
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("%s: %q is given twice", path, name)
		}
		v, err := amount(m[k], name, snake(k) == name)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", path, k, err)
		}
		if out[name], err = normal(v, fields[name], path+"."+k); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// wire collects the fields of a struct by their JSON names, those of embedded structs among them.
func wire(t reflect.Type, into map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			wire(f.Type, into)
			continue
		}
		into[name] = f.Type
	}
}

// unitsOf are the endings of fields that are amounts: without its ending, a field takes an amount with a unit.
var unitsOf = []string{"_bytes", "_ms", "_millis"}

// match finds the field that a key means: in snake_case or camelCase, with or without its unit.
func match(key string, fields map[string]reflect.Type) (string, bool) {
	s := snake(key)
	for _, end := range append([]string{""}, unitsOf...) {
		if _, ok := fields[s+end]; ok {
			return s + end, true
		}
	}
	return "", false
}

// snake is a name in snake_case.
func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if unicode.IsUpper(r) {
			if i > 0 {
				b.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// amount reads a text as the number of a field's unit. exact says that the unit is in the name, so that a bare
// number is clear.
func amount(v any, name string, exact bool) (any, error) {
	s, text := v.(string)
	n, number := v.(json.Number)
	switch {
	case strings.HasSuffix(name, "_bytes") && text:
		return byteSize(s)
	case strings.HasSuffix(name, "_ms") && text:
		d, err := time.ParseDuration(s)
		if err != nil {
			return nil, fmt.Errorf("%q is no duration, as 30s or 1h30m", clip(s))
		}
		return d.Milliseconds(), nil
	case strings.HasSuffix(name, "_ms") && number && !exact:
		return nil, fmt.Errorf("%s has no unit; write %ss or %sm", n, n, n)
	case strings.HasSuffix(name, "_millis") && text:
		return quantity(s, 1000)
	case strings.HasSuffix(name, "_millis") && number && !exact:
		return quantity(n.String(), 1000)
	}
	return v, nil
}

// byteSize reads 512MiB, 512M (the same), 512Mi or 1048576.
func byteSize(s string) (int64, error) {
	if b, ok := strings.CutSuffix(s, "iB"); ok {
		s = b + "i"
	} else if b, ok := strings.CutSuffix(s, "B"); ok {
		s = b
	}
	if len(s) > 1 && strings.ContainsRune("KMGTP", rune(s[len(s)-1])) {
		s += "i"
	}
	n, err := quantity(strings.TrimSpace(s), 1)
	if err != nil {
		return 0, fmt.Errorf("%q is no size, as 512MiB", clip(s))
	}
	return n, nil
}

// unknown says that there is no such field, and which one may be meant.
func unknown(path, key string, fields []string) error {
	at := ""
	if path != "" {
		at = path + ": "
	}
	best, near := "", 3
	for _, f := range fields {
		names := []string{f}
		for _, end := range unitsOf {
			if short, ok := strings.CutSuffix(f, end); ok {
				names = append(names, short)
			}
		}
		for _, n := range names {
			if d := distance(snake(clip(key)), n); d < near {
				best, near = n, d
			}
		}
	}
	if best != "" {
		return fmt.Errorf("%sunknown field %q; did you mean %q?", at, clip(key), best)
	}
	return fmt.Errorf("%sunknown field %q; there are %s", at, clip(key), strings.Join(fields, ", "))
}

// distance is how many letters must be changed, added or left out to make a from b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost++
			}
			corner = row[j+1]
			row[j+1] = min(cost, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
