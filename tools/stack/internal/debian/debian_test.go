package debian

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSourcesKeepsTheReleaseAndItsMirrorsOnly(t *testing.T) {
	tests := []struct {
		name, file, text string
		want             map[string]string
	}{
		{"deb822 with a comment in a stanza", "sources.list.d/debian.sources", `Types: deb
# http://snapshot.example/20250520
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian.gpg

Types: deb-src
URIs: http://mirror.example/debian
Suites: bookworm
Components: main
`, map[string]string{"host.sources": `Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian.gpg

`}},
		{"a key in the stanza", "sources.list.d/x.sources", "Types: deb deb-src\nURIs: http://m.example\nSuites: bookworm-security\nComponents: main\nSigned-By:\n -----BEGIN\n .\n abc\n -----END\n",
			map[string]string{"host.sources": "Types: deb\nURIs: http://m.example\nSuites: bookworm-security\nComponents: main\nSigned-By: \n -----BEGIN\n .\n abc\n -----END\n\n"}},
		{"third-party and disabled sources go", "sources.list.d/x.sources", "Types: deb\nURIs: http://n.example\nSuites: nodistro\nComponents: main\n\nTypes: deb\nURIs: http://m.example\nSuites: bookworm\nComponents: main\nEnabled: no\n", nil},
		{"one-line sources", "sources.list", `# comment
deb [signed-by=/k.gpg arch=amd64] http://m.example/debian bookworm main contrib # here
deb http://m.example/debian bookworm contrib
deb-src http://m.example/debian bookworm main
deb http://m.example/debian trixie main
deb [broken http://m.example/debian bookworm main
	deb   http://s.example/debian-security   bookworm-security   main
`, map[string]string{"host.list": "deb [signed-by=/k.gpg arch=amd64] http://m.example/debian bookworm main\ndeb http://s.example/debian-security bookworm-security main\n"}},
		{"a file of another kind", "sources.list.d/x.bak", "deb http://m.example/debian bookworm main\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			etc := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(etc, "sources.list.d"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(etc, tt.file), []byte(tt.text), 0o644))
			got, err := Sources(etc, "bookworm")
			if tt.want == nil {
				require.ErrorContains(t, err, "no source of main packages for bookworm")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestMissing(t *testing.T) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		require.Equal(t, []string{"a"}, Missing(t.Context(), []string{"a"}), "without dpkg all are missing")
		return
	}
	require.Empty(t, Missing(t.Context(), nil))
	require.Equal(t, []string{"weft-has-no-such-package"}, Missing(t.Context(), []string{"base-files", "weft-has-no-such-package", "dpkg"}))
}

func TestQuote(t *testing.T) {
	output, err := exec.Command("/bin/sh", "-c", "printf %s "+quote(`it's "$HOME" \ here`)).Output()
	require.NoError(t, err)
	require.Equal(t, `it's "$HOME" \ here`, string(output))
}
