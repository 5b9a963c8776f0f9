package sandbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/needs"
	"github.com/weftmesh/weft/schemas/workspace"
)

// withApt is a template of real Debian packages with apt, dpkg and sudo in it.
func withApt(t *testing.T) func(*Spec) {
	_, err := toolchain.Image("debian")
	needs.All(t, err)
	return func(s *Spec) {
		s.Isolation.RootInside, s.Isolation.WritableRoot, s.Image = true, true, "debian"
		s.Resources.DiskBytes = 128 << 20
	}
}

// pack makes, inside, packages with maintainer scripts, owners and modes that only root can give, and a repository of
// them that the network is not asked for.
const pack = `
set -eu
export LC_ALL=C
make_deb() { # name, depends, what postinst does
	d=/tmp/build/$1; mkdir -p $d/DEBIAN $d/usr/bin $d/usr/libexec/$1 $d/etc
	printf 'Package: %s\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDepends: %s\nDescription: a test\n' "$1" "$2" > $d/DEBIAN/control
	printf '#!/bin/sh\necho this is %s\n' "$1" > $d/usr/bin/$1; chmod 755 $d/usr/bin/$1
	echo conf > $d/etc/$1.conf; echo /etc/$1.conf > $d/DEBIAN/conffiles
	touch $d/usr/libexec/$1/owned; chown 33:8 $d/usr/libexec/$1/owned; chmod 2750 $d/usr/libexec/$1/owned
	printf '#!/bin/sh\nset -e\n%s\n' "$3" > $d/DEBIAN/postinst; chmod 755 $d/DEBIAN/postinst
	mkdir -p /srv/repo; dpkg-deb --build $d /srv/repo/$1.deb >/dev/null
}
make_deb weft-one 'base-files' 'true'
make_deb weft-lib 'base-files' 'useradd --system --no-create-home weftlib; chown weftlib /usr/libexec/weft-lib/owned'
make_deb weft-two 'weft-lib, debconf' '. /usr/share/debconf/confmodule; update-alternatives --install /usr/bin/two two /usr/bin/weft-two 10'
cd /srv/repo
for f in *.deb; do
	dpkg-deb -f $f; printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' $f $(stat -c %s $f) $(sha256sum $f | cut -d' ' -f1)
done > Packages
echo 'deb [trusted=yes] file:/srv/repo ./' > /etc/apt/sources.list
`

// Root inside is for this: apt, dpkg and sudo as Debian has them work, as root and as the user agent by sudo.
func TestAptDpkgAndSudo(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	for _, level := range []string{workspace.LevelStandard, workspace.LevelHigh} {
		t.Run(level, func(t *testing.T) {
			s := create(t, n, withApt(t), func(s *Spec) { s.Level = level })
			said := func(script string) string {
				exit, out := asRoot(t, s, script)
				require.Zero(t, exit.Code, out)
				return out
			}
			require.Empty(t, said(pack))

			said(`dpkg -i /srv/repo/weft-one.deb`)
			require.Equal(t, "this is weft-one\n33:8 2750\nii \n", said(`weft-one; stat -c '%u:%g %a' /usr/libexec/weft-one/owned; dpkg-query -W -f '${db:Status-Abbrev}\n' weft-one`))

			require.NotContains(t, said(`apt-get update 2>&1`), "W:", "nothing was given up: packages are fetched as the user _apt")
			said(`DEBIAN_FRONTEND=noninteractive apt-get install -y weft-two 2>&1`)
			require.Equal(t, "this is weft-two\nweftlib\n", said(`two; stat -c %U /usr/libexec/weft-lib/owned`))
			said(`DEBIAN_FRONTEND=noninteractive apt-get purge -y weft-lib 2>&1`)
			require.Equal(t, "gone\n", said(`[ -e /usr/bin/weft-two ] || [ -e /etc/weft-lib.conf ] || echo gone`))

			require.Equal(t, "nobody\n", said(`sudo -u nobody id -un`))
			exit, out := sh(t, s, `id -u; sudo id -u; sudo -u nobody id -un; sudo apt-get install -y weft-lib >/dev/null 2>&1; weft-lib; touch /etc/x 2>/dev/null || echo refused`)
			require.Zero(t, exit.Code, out)
			require.Equal(t, "1000\n0\nnobody\nthis is weft-lib\nrefused\n", out)
			require.NoError(t, s.Destroy(within(t, 30*time.Second)))
		})
	}
	requireNothing(t, n)
}
