package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// Text is a string of any bytes but NUL: arguments, environment and paths on Linux need not be UTF-8.
// In JSON it is a string where it can be one, and {"b64": …} else, so that no byte is changed on the way.
type Text string

type textBytes struct {
	B64 *string `json:"b64"`
}

// MarshalJSON writes t as described at Text.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	s := base64.StdEncoding.EncodeToString([]byte(t))
	return json.Marshal(textBytes{B64: &s})
}

// UnmarshalJSON reads either form.
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(t))
	}
	var enc textBytes
	if err := json.Unmarshal(b, &enc); err != nil {
		return err
	}
	if enc.B64 == nil {
		return errors.New(`text must be a string or {"b64": …}`)
	}
	raw, err := base64.StdEncoding.DecodeString(*enc.B64)
	if err != nil {
		return err
	}
	*t = Text(raw)
	return nil
}

// Texts converts strings.
func Texts(in ...string) []Text {
	out := make([]Text, len(in))
	for i, s := range in {
		out[i] = Text(s)
	}
	return out
}

// Strings converts back.
func Strings(in []Text) []string {
	out := make([]string, len(in))
	for i, t := range in {
		out[i] = string(t)
	}
	return out
}
