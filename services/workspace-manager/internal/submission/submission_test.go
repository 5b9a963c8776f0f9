package submission_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/submission"
)

func TestDecode(t *testing.T) {
	for body, want := range map[string]string{
		`{"agent":"a","new_field":{"x":1}}`:       "",
		`{"agent":"a","input":null,"group":null}`: "",
		`{"agent":7}`:                                       `field "agent" must be a string, not a number`,
		`{"agent":"a","timeout_ms":"5s"}`:                   `field "timeout_ms" must be a whole number, not a string`,
		`{"agent":"a","timeout_ms":1.5}`:                    `field "timeout_ms" must be a whole number, not the number 1.5`,
		`{"agent":"a","command":"ls"}`:                      `field "command" must be a list of strings, not a string`,
		`{"agent":"a","command":["ls",1]}`:                  `must be a string, not a number`,
		`{"agent":"a","env":["A=b"]}`:                       `field "env" must be an object of strings, not an array`,
		`{"agent":"a","env":{"A":1}}`:                       `must be a string, not a number`,
		`{"agent":"a","group":{"id":"g","size":""}}`:        `field "group.size" must be a whole number, not a string`,
		`{"agent":"a","group":[]}`:                          `field "group" must be an object, not an array`,
		`{"agent":"a","max_attempts":99999999999999999999}`: `field "max_attempts" must be a whole number`,
		"{\"agent\":\"a\",\"env\":{\"A\":\"\xff\"}}":        "not valid UTF-8",
	} {
		s, err := submission.Decode([]byte(body))
		if want == "" {
			require.NoError(t, err, body)
		} else {
			require.ErrorContains(t, err, want, body)
			require.NotErrorIs(t, err, submission.ErrUndecodable)
		}
		if body != `{"agent":7}` {
			require.Equal(t, "a", s.Agent, "what was right is kept: %s", body)
		}
	}
	for _, body := range []string{"", "{", "null", "[]", `"x"`, "7", `{"agent":"a"} {`, "\x00\x01"} {
		_, err := submission.Decode([]byte(body))
		require.ErrorIs(t, err, submission.ErrUndecodable, body)
	}
}

func TestCheck(t *testing.T) {
	big := strings.Repeat("x", submission.MaxArgBytes)
	for name, c := range map[string]struct {
		s    workspace.Submission
		want string
	}{
		"agent":          {workspace.Submission{Agent: "a"}, ""},
		"template":       {workspace.Submission{Template: "base", Command: []string{"ls"}}, ""},
		"nothing":        {workspace.Submission{}, `name an "agent"`},
		"template alone": {workspace.Submission{Template: "base"}, `name an "agent"`},
		"both":           {workspace.Submission{Agent: "a", Template: "b", Command: []string{"ls"}}, "not both"},
		"bad agent":      {workspace.Submission{Agent: "A.*"}, "DNS label"},
		"priority":       {workspace.Submission{Agent: "a", Priority: "urgent"}, "high, normal or low"},
		"timeout":        {workspace.Submission{Agent: "a", TimeoutMS: -1}, "timeout_ms"},
		"attempts":       {workspace.Submission{Agent: "a", MaxAttempts: 21}, "max_attempts"},
		"parent":         {workspace.Submission{Agent: "a", Parent: "x"}, "parent"},
		"depth":          {workspace.Submission{Agent: "a", Depth: 9}, "depth"},
		"depth 8":        {workspace.Submission{Agent: "a", Depth: 8}, ""},
		"NUL":            {workspace.Submission{Agent: "a", Command: []string{"ls", "a\x00b"}}, "argument 1"},
		"empty program":  {workspace.Submission{Agent: "a", Command: []string{""}}, "program"},
		"long command":   {workspace.Submission{Agent: "a", Command: []string{big}}, "bytes long"},
		"env name":       {workspace.Submission{Agent: "a", Env: map[string]string{"1A": ""}}, "variable's name"},
		"env NUL":        {workspace.Submission{Agent: "a", Env: map[string]string{"A": "\x00"}}, "NUL"},
		"label":          {workspace.Submission{Agent: "a", Labels: map[string]string{"a b": ""}}, "labels"},
		"label value":    {workspace.Submission{Agent: "a", Labels: map[string]string{"a": "\n"}}, "control"},
		"group":          {workspace.Submission{Agent: "a", Group: &workspace.Group{ID: "g", Size: 3}}, ""},
		"group size":     {workspace.Submission{Agent: "a", Group: &workspace.Group{ID: "g"}}, "group.size"},
		"group id":       {workspace.Submission{Agent: "a", Group: &workspace.Group{ID: "é", Size: 1}}, "group id"},
	} {
		t.Run(name, func(t *testing.T) {
			err := submission.Check(&c.s)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	tpl := &workspace.Template{Name: "base", Image: "base:1", Env: map[string]string{"A": "t", "B": "t", "C": "t"},
		Resources: workspace.Resources{MemoryBytes: 1 << 30, PIDs: 7}}
	ag := &workspace.Agent{Name: "writer", Entrypoint: []string{"python3", "main.py"}, Env: map[string]string{"B": "a", "C": "a"},
		Resources: workspace.Resources{PIDs: 9}, TimeoutMS: 5000, Secrets: []workspace.SecretUse{{Name: "key", As: "file"}}}
	r := submission.Resolve(&workspace.Submission{Agent: "writer", Env: map[string]string{"C": "s"}}, "ann", ag, tpl)
	require.Equal(t, &workspace.RunSpec{Principal: "writer", Argv: ag.Entrypoint, Env: map[string]string{"A": "t", "B": "a", "C": "s"},
		Workdir: "/workspace", Image: "base:1", Level: "standard", Files: "private", TimeoutMS: 5000, Secrets: ag.Secrets,
		Resources: workspace.Resources{CPUMillis: submission.DefaultCPUMillis, MemoryBytes: 1 << 30, PIDs: 9,
			DiskBytes: submission.DefaultDiskBytes, OutputBytes: submission.DefaultOutputBytes}}, r)

	r = submission.Resolve(&workspace.Submission{Template: "base", Command: []string{"ls"}, TimeoutMS: 9}, "ann", nil, tpl)
	require.Equal(t, "ann", r.Principal)
	require.Equal(t, []string{"ls"}, r.Argv)
	require.Empty(t, r.Secrets)
	require.EqualValues(t, 9, r.TimeoutMS)
}

func TestKeysOfTheManagerAreReserved(t *testing.T) {
	for _, k := range []string{submission.SequenceKey(7), submission.TriggerKey("t", "msg", 7), submission.GatherKey("x"), submission.RetryKey("x"), "", "a b", "é", strings.Repeat("x", 257)} {
		require.Error(t, submission.CheckKey(k), k)
	}
	require.NoError(t, submission.CheckKey("order-17/a"))
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"agent":"a","group":{"id":"g","size":3},"env":{"A":"b"},"input":[1,{"x":null}],"depth":3}`))
	f.Add([]byte(`{"command":["\u0000"],"labels":{"":""}}`))
	f.Add([]byte("{\"input\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := submission.Decode(body)
		if err == nil {
			err = submission.Check(&s)
		}
		b, merr := json.Marshal(s)
		require.NoError(t, merr, "whatever was decoded can be written into a record")
		if err == nil {
			again, err := submission.Decode(b)
			require.NoError(t, err)
			require.NoError(t, submission.Check(&again))
			r := submission.Resolve(&s, "ann", &workspace.Agent{Name: "a", Entrypoint: []string{"x"}}, &workspace.Template{})
			require.NotEmpty(t, r.Argv)
		}
	})
}
