package weftinit

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/pkg/fault"
)

// maxOffsets bounds what the places of all matches in one file take: 8 bytes each.
const maxOffsets = 1 << 19

// template is what matches are replaced with, in parts. The standard library's own would let a short one make
// gigabytes of a large match.
type template []templatePart

type templatePart struct {
	text  []byte
	group int // if text is nil
}

// parseTemplate knows $1, ${1}, ${name} and $$.
func parseTemplate(s string, re *regexp.Regexp) (template, error) {
	var t template
	text := func(s string) {
		if s != "" {
			t = append(t, templatePart{text: []byte(s)})
		}
	}
	for {
		before, rest, ok := strings.Cut(s, "$")
		text(before)
		if !ok {
			return t, nil
		}
		if after, ok := strings.CutPrefix(rest, "$"); ok {
			text("$")
			s = after
			continue
		}
		var name string
		if braced, ok := strings.CutPrefix(rest, "{"); ok {
			if name, s, ok = strings.Cut(braced, "}"); !ok {
				return nil, fault.New(fault.Invalid, "the replacement has ${ without }")
			}
		} else {
			end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
			if end < 0 {
				end = len(rest)
			}
			name, s = rest[:end], rest[end:]
		}
		group := re.SubexpIndex(name)
		if n, err := strconv.Atoi(name); err == nil {
			group = n
		}
		if group < 0 || group > re.NumSubexp() {
			return nil, fault.New(fault.Invalid, "the replacement names a group %.40q that the pattern has not; write $$ for a dollar", name)
		}
		t = append(t, templatePart{group: group})
	}
}

// replaceAll gives src with every match replaced, as long as that has at most room bytes.
func (t template) replaceAll(re *regexp.Regexp, src []byte, room int) (out []byte, count int, err error) {
	most := maxOffsets / (2 * (re.NumSubexp() + 1))
	found := re.FindAllSubmatchIndex(src, most+1)
	if len(found) > most {
		return nil, 0, fault.New(fault.Exhausted, "more than %d matches in one file; edit it with a command", most)
	}
	last := 0
	add := func(b []byte) {
		if len(out)+len(b) > room {
			err = fault.New(fault.Exhausted, "the file would have more than %d bytes", room)
			return
		}
		out = append(out, b...)
	}
	for _, m := range found {
		add(src[last:m[0]])
		for _, p := range t {
			if p.text == nil && m[2*p.group] >= 0 {
				add(src[m[2*p.group]:m[2*p.group+1]])
			} else {
				add(p.text)
			}
		}
		if last = m[1]; err != nil {
			return nil, 0, err
		}
	}
	add(src[last:])
	return out, len(found), err
}
