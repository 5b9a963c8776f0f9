package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoadExtends(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o644))
	}
	write("base", `{"name":"base","version":"1","packages":["bash"],"drop":["/x"],"links":{"/a":"b","/c":"d"},
		"config":{"user":"1000:1000","working_dir":"/w","cmd":["sh"],"env":{"A":"1","B":"2"}}}`)
	write("python", `{"name":"python","version":"3","extends":"base","packages":["python3"],"links":{"/c":"e"},"config":{"cmd":["python3"],"env":{"B":"3"}}}`)

	r, err := Load(dir, "python")
	require.NoError(t, err)
	require.Equal(t, "weft.local/template/python:3", r.Reference())
	require.Equal(t, []string{"bash", "python3"}, r.Packages)
	require.Equal(t, []string{"/x"}, r.Drop)
	require.Equal(t, map[string]string{"/a": "b", "/c": "e"}, r.Links)
	require.Equal(t, Config{User: "1000:1000", WorkingDir: "/w", Cmd: []string{"python3"}, Env: map[string]string{"A": "1", "B": "3"}, Labels: map[string]string{}}, r.Config)
}

func TestLoadRefuses(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"unknown field", `{"name":"x","version":"1","packges":["a"]}`, "packges"},
		{"another name", `{"name":"y","version":"1","packages":["bash"]}`, `the name in it is "y"`},
		{"itself", `{"name":"x","version":"1","extends":"x","packages":["bash"]}`, "extends itself"},
		{"no packages", `{"name":"x","version":"1"}`, "no packages"},
		{"an option for a package", `{"name":"x","version":"1","packages":["--hook=evil"]}`, "not the name of a package"},
		{"a version that is no tag", `{"name":"x","version":"a/b","packages":["bash"]}`, "name and version"},
		{"a relative path", `{"name":"x","version":"1","packages":["bash"],"dirs":[{"path":"workspace","mode":"0755"}]}`, "clean absolute path"},
		{"a path that climbs", `{"name":"x","version":"1","packages":["bash"],"links":{"/a/../../b":"c"}}`, "clean absolute path"},
		{"setuid", `{"name":"x","version":"1","packages":["bash"],"files":[{"path":"/a","mode":"4755"}]}`, "mode"},
		{"a relative setuid program", `{"name":"x","version":"1","packages":["bash"],"setuid":["bin/su"]}`, "clean absolute path"},
		{"a broken pattern", `{"name":"x","version":"1","packages":["bash"],"drop":["/a["]}`, "not a pattern"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "x.json"), []byte(tt.text), 0o644))
			_, err := Load(dir, "x")
			require.ErrorContains(t, err, tt.want)
		})
	}
}
