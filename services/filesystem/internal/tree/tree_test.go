package tree

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/diskimage"
	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/pkg/needs"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// needRoot skips, or fails where everything has to run, without what overlays need.
func needRoot(t testing.TB) {
	t.Helper()
	needs.Root(t)
	_, err := os.Stat("/dev/loop-control")
	needs.All(t, err)
	_, err = diskimage.Open(t.TempDir())
	needs.All(t, err)
}

const idBase = 1_000_000

type fixture struct {
	t     testing.TB
	data  string
	trees *Trees
	store *chunks.Store
	tree  *manifest.Tree
	space Space
}

func setup(t testing.TB) *fixture {
	needRoot(t)
	data := t.TempDir()
	for _, d := range []string{data, filepath.Dir(data)} { // the payload has to reach it; a runtime binds it instead
		require.NoError(t, os.Chmod(d, 0o711))
	}
	s, err := chunks.Open(filepath.Join(data, "chunks"))
	require.NoError(t, err)
	trees, err := Open(data)
	require.NoError(t, err)
	tr := manifest.NewTree(s)
	t.Cleanup(func() {
		ids, err := trees.List()
		require.NoError(t, err)
		for _, id := range ids {
			require.NoError(t, trees.Remove(id))
		}
		trees.Close()
		require.NoError(t, s.Close())
		at, err := mounts.Below(data)
		require.NoError(t, err)
		require.Empty(t, at)
	})
	return &fixture{t, data, trees, s, tr, Space{"acme", "demo", tr, s}}
}

// plant makes a tree: "->x" is a symlink, "dir/" an empty directory, "+x " sets the executable bit.
func (f *fixture) plant(files map[string]string) chunks.Hash {
	b := f.store.Batch()
	ed, err := f.tree.Edit(manifest.Empty, 1_700_000_000_000_000_000)
	require.NoError(f.t, err)
	for _, p := range slices.Sorted(maps.Keys(files)) {
		e := manifest.Entry{Type: manifest.Dir, Mode: 0o755}
		if target, ok := strings.CutPrefix(files[p], "->"); ok {
			e = manifest.Entry{Type: manifest.Symlink, Mode: 0o777, Target: target}
		} else if files[p] != "dir/" {
			text, exec := strings.CutPrefix(files[p], "+x ")
			e, err = manifest.Store(b, strings.NewReader(text), 1<<40)
			require.NoError(f.t, err)
			if e.Mode = 0o644; exec {
				e.Mode = 0o755
			}
		}
		e.MTime = 1_700_000_000_123_456_789
		require.NoError(f.t, ed.Set(p, e))
	}
	h, err := ed.Commit(b)
	require.NoError(f.t, err)
	require.NoError(f.t, b.Commit())
	return h
}

func (f *fixture) harvest(src manifest.Source, tr *manifest.Tree, h chunks.Hash) map[string]string {
	out := map[string]string{}
	require.NoError(f.t, tr.Walk(h, func(p string, e manifest.Entry) error {
		switch {
		case e.Type == manifest.Symlink:
			out[p] = "->" + e.Target
		case e.Type == manifest.Dir && e.Hash == manifest.Empty:
			out[p] = "dir/"
		case e.Type == manifest.File:
			r, err := manifest.Open(src, e, 0)
			require.NoError(f.t, err)
			b, err := io.ReadAll(r)
			require.NoError(f.t, err)
			if out[p] = string(b); e.Mode&0o100 != 0 {
				out[p] = "+x " + out[p]
			}
		}
		return nil
	}))
	return out
}

func (f *fixture) prepare(root chunks.Hash, change ...func(*Overlay)) Overlay {
	o := Overlay{Tenant: "acme", Workspace: "demo", Owner: schemas.NewID(), Attempt: 1, Sandbox: schemas.NewID(), DiskBytes: 32 << 20, IDBase: idBase}
	for _, c := range change {
		c(&o)
	}
	o, err := f.trees.Prepare(context.Background(), f.space, o, root)
	require.NoError(f.t, err)
	if o.IDBase == 0 {
		f.mountParts(o)
	}
	return o
}

// mountParts does what a runtime does that mounts the overlay itself: the layers idmapped, the upper one handed to the host's ids.
func (f *fixture) mountParts(o Overlay) {
	lower, upper, work := f.trees.Parts(o)
	require.NoError(f.t, os.Mkdir(f.trees.Path(o.Sandbox), 0o755))
	require.NoError(f.t, os.Chown(upper, idBase+Payload, idBase+Payload))
	for i, l := range lower {
		at := filepath.Join(f.t.TempDir(), "lower")
		require.NoError(f.t, os.Mkdir(at, 0o755))
		require.NoError(f.t, f.trees.maps.withMap(idBase, func(ns int) error { return mountMapped(ns, l, at, true) }))
		defer func() { require.NoError(f.t, unix.Unmount(at, 0)) }()
		lower[i] = at
	}
	require.NoError(f.t, unix.Mount("overlay", f.trees.Path(o.Sandbox), "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on,index=off,metacopy=off,xino=off", strings.Join(lower, ":"), upper, work)))
}

// read gives what the sandbox made of root.
func (f *fixture) read(root chunks.Hash, sandbox string) (map[string]string, []Skipped) {
	up, err := f.trees.Upper(sandbox)
	require.NoError(f.t, err)
	defer up.Close()
	b := f.store.Batch()
	defer b.Abort()
	tr := f.tree.Through(b)
	h, skipped, err := Read(tr, b, root, up, Limits{Files: 100_000, Bytes: 1 << 30})
	require.NoError(f.t, err)
	return f.harvest(b, tr, h), skipped
}

// inside runs a script as id 1000 of a user namespace like a sandbox's, in the overlay.
func (f *fixture) inside(o Overlay, script string) string {
	out, err := f.try(o, script)
	require.NoError(f.t, err, out)
	return out
}

func (f *fixture) try(o Overlay, script string) (string, error) {
	cmd := exec.Command("/bin/bash", "-ec", script)
	cmd.Dir = f.trees.Path(o.Sandbox)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Payload, Gid: Payload}, Pdeathsig: syscall.SIGKILL}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: idBase, Size: idRange}}
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings, cmd.SysProcAttr.GidMappingsEnableSetgroups = ids, ids, true
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var sample = map[string]string{
	"README": "hello\n", "run.sh": "+x #!/bin/sh\n", "src/a.go": "a\n", "src/b.go": "b\n", "src/deep/er/c": "c\n",
	"link": "->README", "out": "->/etc/shadow", "empty": "dir/", "ü ü/new\nline": "odd\n",
}

func TestASandboxSeesTheBaseAsItsOwn(t *testing.T) {
	f := setup(t)
	o := f.prepare(f.plant(sample))
	require.Equal(t, "1000 1000 644\n1000 1000 755\n1000 1000 755\n1000 1000 777\n",
		f.inside(o, `for p in README run.sh src link; do stat -c '%u %g %a' $p; done`))
	require.Equal(t, "hello\nhello\n", f.inside(o, "cat README link"))
	require.Equal(t, "2023-11-14 22:13:20.123456789\n", f.inside(o, "TZ=UTC stat -c %y README | cut -d' ' -f1,2"))
	got, skipped := f.read(f.plant(sample), o.Sandbox)
	require.Equal(t, sample, got)
	require.Empty(t, skipped)
}

func TestChangesAreReadBack(t *testing.T) {
	for _, base := range []uint32{idBase, 0} {
		t.Run(fmt.Sprint(base), func(t *testing.T) {
			f := setup(t)
			root := f.plant(sample)
			o := f.prepare(root, func(o *Overlay) { o.IDBase = base })
			f.inside(o, `
				echo more >> README
				rm src/a.go
				echo new > src/new
				mv src/b.go b.go
				mv src/deep moved          # a directory of the base: redirect
				echo inner > moved/er/x
				mv src sources             # and the directory above it
				mkdir -p src; echo again > src/a.go
				rm -r empty; ln -s /etc/passwd empty
				rm link; mkdir link; echo f > link/f
				chmod +x link/f
				rm -r 'ü ü'; mkdir 'ü ü'   # opaque
				echo touched > t; rm t
				touch run.sh`)
			got, skipped := f.read(root, o.Sandbox)
			require.Empty(t, skipped)
			require.Equal(t, map[string]string{
				"README": "hello\nmore\n", "run.sh": "+x #!/bin/sh\n", "sources/new": "new\n", "b.go": "b\n", "moved/er/c": "c\n", "moved/er/x": "inner\n",
				"src/a.go": "again\n", "out": "->/etc/shadow", "empty": "->/etc/passwd", "link/f": "+x f\n", "ü ü": "dir/",
			}, got)
			if base == 0 {
				return
			}
			// Whatever sandbox wrote it, it has the one owner on disk.
			require.NoError(t, filepath.WalkDir(filepath.Join(f.data, "overlays", o.Sandbox, "disk", "upper"), func(p string, d os.DirEntry, err error) error {
				require.NoError(t, err)
				var st unix.Stat_t
				require.NoError(t, unix.Lstat(p, &st))
				if st.Mode&unix.S_IFMT != unix.S_IFCHR {
					require.EqualValues(t, Owner, st.Uid, p)
					require.EqualValues(t, Owner, st.Gid, p)
				}
				return nil
			}))
		})
	}
}

func TestTheQuotaIsHard(t *testing.T) {
	f := setup(t)
	o := f.prepare(f.plant(sample), func(o *Overlay) { o.DiskBytes = 16 << 20 })
	out, err := f.try(o, "dd if=/dev/zero of=big bs=1M count=1000")
	require.Error(t, err)
	require.Contains(t, out, "No space left on device")
	out = f.inside(o, "stat -c %s big; rm big; echo fits > small; cat small")
	size := 0
	_, err = fmt.Sscan(out, &size)
	require.NoError(t, err)
	require.InDelta(t, 16<<20, size, 2<<20)
	out, err = f.try(o, "for i in $(seq 100000); do echo > f$i || exit 1; done")
	require.Error(t, err, "inodes, too")
	require.Contains(t, out, "No space left on device")
	f.inside(o, "ls -U | grep ^f | xargs rm; cat README")
}

func TestHostileTrees(t *testing.T) {
	f := setup(t)
	root := f.plant(sample)
	o := f.prepare(root)
	f.inside(o, `
		mkfifo fifo README2; rm README; mkfifo README
		ln -s / root; ln -s ../../../../../../etc up; ln -s loop loop
		python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")' || mkfifo sock
		mkdir 'bad'$'\xff''name'; echo x > 'bad'$'\xff''name/x'; echo y > $'\xfe'
		echo x > one; ln one two
		echo x > setuid; chmod 6755 setuid; mkdir sticky; chmod 1777 sticky
		mkdir dark; echo x > dark/x; chmod 0 dark
		d=.; for i in $(seq 100); do mkdir d; cd d; done; echo bottom > file`)
	got, skipped := f.read(root, o.Sandbox)
	reasons := map[string]string{}
	for _, s := range skipped {
		reasons[s.Path] = s.Reason
	}
	require.Equal(t, "a FIFO can't be stored", reasons["fifo"])
	require.Equal(t, "a FIFO can't be stored", reasons["README"])
	require.Contains(t, reasons["sock"], "can't be stored")
	require.Equal(t, "its name is not valid UTF-8", reasons[`"bad\xffname"`])
	require.Equal(t, "its name is not valid UTF-8", reasons[`"\xfe"`])
	require.Equal(t, "it is too deep", reasons[strings.Repeat("d/", manifest.MaxDepth-1)+"d"])
	require.Equal(t, "hello\n", got["README"], "what can't be stored does not remove what is there")
	require.Equal(t, "->/", got["root"])
	require.Equal(t, "->../../../../../../etc", got["up"])
	require.Equal(t, "x\n", got["one"])
	require.Equal(t, "x\n", got["two"])
	require.Equal(t, "+x x\n", got["setuid"])
	require.Equal(t, "x\n", got["dark/x"])
	require.NotContains(t, strings.Join(slices.Collect(maps.Keys(got)), " "), "root/")
	for p := range got {
		_, err := manifest.SplitPath(p)
		require.NoError(t, err)
	}
	out, err := f.try(o, "mknod hole c 0 0")
	require.Error(t, err, out)
	require.NoError(t, f.trees.Remove(o.Sandbox))
}

func TestLimitsOfWhatIsRead(t *testing.T) {
	f := setup(t)
	root := f.plant(nil)
	o := f.prepare(root)
	f.inside(o, "mkdir d; truncate -s 1T d/sparse; echo > a")
	up, err := f.trees.Upper(o.Sandbox)
	require.NoError(t, err)
	defer up.Close()
	b := f.store.Batch()
	defer b.Abort()
	var le *LimitError
	_, _, err = Read(f.tree.Through(b), b, root, up, Limits{Files: 100, Bytes: 1 << 30})
	require.ErrorAs(t, err, &le)
	require.Equal(t, LimitError{"bytes", "d/sparse", 1 << 30}, *le)
	_, _, err = Read(f.tree.Through(b), b, root, up, Limits{Files: 2, Bytes: 1 << 50})
	require.ErrorAs(t, err, &le)
	require.Equal(t, "files", le.What)
}

func TestLayersOnLayers(t *testing.T) {
	f := setup(t)
	want := maps.Clone(sample)
	for i := range 3 * maxChain {
		switch i % 5 {
		case 0:
			want[fmt.Sprintf("new/%d", i)] = fmt.Sprint(i)
		case 1:
			want["README"] = fmt.Sprint("version ", i)
		case 2:
			delete(want, fmt.Sprintf("new/%d", i-2))
		case 3:
			delete(want, "turns")
			want["turns/into"] = "a directory"
		case 4:
			delete(want, "turns/into")
			want["turns"] = "into a file"
		}
		root := f.plant(want)
		o := f.prepare(root)
		require.LessOrEqual(t, len(o.Layers), maxChain)
		checkSame(t, f, o, want)
		require.NoError(t, f.trees.Remove(o.Sandbox))
		if i%7 == 0 {
			require.NoError(t, f.trees.Prune(f.space))
		}
	}
	// A new process finds them, removes what is half-made, and goes on with the newest.
	require.NoError(t, os.MkdirAll(filepath.Join(f.data, "layers/acme/demo/half.tmp/root"), 0o700))
	again, err := Open(f.data)
	require.NoError(t, err)
	defer again.Close()
	l, err := again.layers(f.space)
	require.NoError(t, err)
	require.Equal(t, layerID(f.plant(want)), l.newest)
	require.NoDirExists(t, filepath.Join(f.data, "layers/acme/demo/half.tmp"))
	require.NoError(t, again.Forget("acme", ""))
	require.NoDirExists(t, filepath.Join(f.data, "layers/acme"))
}

// checkSame compares what the mount shows with want.
func checkSame(t *testing.T, f *fixture, o Overlay, want map[string]string) {
	got := map[string]string{}
	top := f.trees.Path(o.Sandbox)
	require.NoError(t, filepath.WalkDir(top, func(p string, d os.DirEntry, err error) error {
		require.NoError(t, err)
		rel, _ := filepath.Rel(top, p)
		info, err := os.Lstat(p)
		require.NoError(t, err)
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(p)
			require.NoError(t, err)
			got[rel] = "->" + target
		case d.IsDir():
			entries, err := os.ReadDir(p)
			require.NoError(t, err)
			if len(entries) == 0 {
				got[rel] = "dir/"
			}
		default:
			b, err := os.ReadFile(p)
			require.NoError(t, err)
			if got[rel] = string(b); info.Mode()&0o100 != 0 {
				got[rel] = "+x " + got[rel]
			}
		}
		return nil
	}))
	require.Equal(t, want, got)
}

func TestReadOnly(t *testing.T) {
	f := setup(t)
	first := f.plant(sample)
	for _, root := range []chunks.Hash{first, f.plant(map[string]string{"README": "second\n"})} {
		o := f.prepare(root, func(o *Overlay) { o.ReadOnly = true })
		require.Contains(t, f.inside(o, "stat -c %u README"), "1000")
		out, err := f.try(o, "echo x > README")
		require.Error(t, err)
		require.Contains(t, out, "Read-only")
		out, err = f.try(o, "echo x > new")
		require.Error(t, err, out)
	}
}

func TestPrepareTwiceAndAfterARestart(t *testing.T) {
	f := setup(t)
	root := f.plant(sample)
	o := f.prepare(root)
	f.inside(o, "echo mine > mine")
	again, err := f.trees.Prepare(context.Background(), f.space, o, root)
	require.NoError(t, err)
	require.Equal(t, o.Layers, again.Layers)
	require.Equal(t, "mine\n", f.inside(o, "cat mine"))
	other, err := Open(f.data)
	require.NoError(t, err)
	defer other.Close()
	ids, err := other.List()
	require.NoError(t, err)
	require.Equal(t, []string{o.Sandbox}, ids)
	found, err := other.Get(o.Sandbox)
	require.NoError(t, err)
	require.Equal(t, o, found)
	require.NoError(t, other.Remove(o.Sandbox))
	require.NoError(t, other.Remove(o.Sandbox))
	_, err = other.Get(o.Sandbox)
	require.ErrorIs(t, err, ErrNoOverlay)
	_, err = other.Upper(o.Sandbox)
	require.ErrorIs(t, err, ErrNoOverlay)
}

// A process that is killed while it copies an overlay's disk leaves that frozen. The next one lets it go on.
func TestADiskThatWasLeftFrozen(t *testing.T) {
	f := setup(t)
	o := f.prepare(f.plant(sample))
	disk := filepath.Join(f.data, "overlays", o.Sandbox, "disk")
	fd, err := unix.Open(disk, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	const freeze, thaw = 0xC0045877, 0xC0045878
	require.NoError(t, unix.IoctlSetInt(fd, freeze, 0))
	other, err := Open(f.data)
	require.NoError(t, err)
	defer other.Close()
	require.ErrorIs(t, unix.IoctlSetInt(fd, thaw, 0), unix.EINVAL, "it is thawed")
	require.NoError(t, unix.Close(fd))
	require.Equal(t, "mine\n", f.inside(o, "echo mine > mine; cat mine"))
}

func TestAfterAReboot(t *testing.T) {
	f := setup(t)
	root := f.plant(sample)
	o := f.prepare(root)
	f.inside(o, "echo lost > lost")
	require.NoError(t, os.WriteFile(filepath.Join(f.data, "boot"), []byte("another one\n"), 0o600))
	again, err := Open(f.data)
	require.NoError(t, err)
	defer again.Close()
	_, err = again.Get(o.Sandbox)
	require.ErrorIs(t, err, ErrNoOverlay)
	require.NoDirExists(t, filepath.Join(f.data, "layers/acme"))
	f.trees = again
	o = f.prepare(root)
	checkSame(t, f, o, sample)
	third, err := Open(f.data)
	require.NoError(t, err)
	defer third.Close()
	_, err = third.Get(o.Sandbox)
	require.NoError(t, err, "the same boot")
}

func TestPathsFromOutsideAreRefused(t *testing.T) {
	f := setup(t)
	for _, id := range []string{"", "..", "../../../etc", "ABCDEFGHIJKLMNOPQRST", strings.Repeat("a", 21)} {
		_, err := f.trees.Prepare(context.Background(), f.space, Overlay{Sandbox: id}, manifest.Empty)
		require.Error(t, err, id)
		require.Error(t, f.trees.Remove(id))
		_, err = f.trees.Get(id)
		require.Error(t, err)
	}
}

func BenchmarkPrepareAndRemove(b *testing.B) {
	f := setup(b)
	root := f.plant(sample)
	b.ResetTimer()
	for b.Loop() {
		o := f.prepare(root)
		require.NoError(b, f.trees.Remove(o.Sandbox))
	}
}

func TestDroppedOverlaysAreGoneAtOnceAndRemovedInTheEnd(t *testing.T) {
	f := setup(t)
	root := f.plant(sample)
	o := f.prepare(root)
	require.NoError(t, f.trees.Drop(o.Sandbox))
	_, err := f.trees.Get(o.Sandbox)
	require.ErrorIs(t, err, ErrNoOverlay)
	require.NoDirExists(t, filepath.Join(f.data, "overlays", o.Sandbox))
	require.NoError(t, f.trees.Drop(o.Sandbox), "again")
	again, err := f.trees.Prepare(context.Background(), f.space, Overlay{Sandbox: o.Sandbox, DiskBytes: 8 << 20}, root)
	require.NoError(t, err, "the name is free")
	require.NoError(t, f.trees.Drop(again.Sandbox))

	// Killed between the two steps: what is left is mounted, and the next process removes it.
	o = f.prepare(root)
	dir := f.trees.dir(o.Sandbox)
	require.NoError(t, os.Rename(dir, dir+dropped))
	next, err := Open(f.data)
	require.NoError(t, err)
	next.Close()
	require.NoDirExists(t, dir+dropped)
	f.trees.dropping.Wait()
	f.trees.spares.close() // else there are some, or not yet
	left, err := os.ReadDir(filepath.Join(f.data, "overlays"))
	require.NoError(t, err)
	require.Empty(t, left)
	points, err := mounts.Below(filepath.Join(f.data, "overlays"))
	require.NoError(t, err)
	require.Empty(t, points)
}

func TestOverlaysTakeSpareDisks(t *testing.T) {
	f := setup(t)
	root := f.plant(sample)
	prepare := func(bytes int64) (Overlay, string) {
		o, err := f.trees.Prepare(context.Background(), f.space, Overlay{Sandbox: schemas.NewID(), DiskBytes: bytes}, root)
		require.NoError(t, err)
		st, err := os.Stat(filepath.Join(f.trees.dir(o.Sandbox), "disk.img"))
		require.NoError(t, err)
		_, upper, _ := f.trees.Parts(o)
		require.DirExists(t, upper)
		left, err := os.ReadDir(upper)
		require.NoError(t, err)
		require.Empty(t, left, "nobody has used it")
		return o, fmt.Sprint(st.Sys().(*syscall.Stat_t).Ino)
	}
	waiting := func(n int) (inodes []string) {
		t.Helper()
		require.Eventually(t, func() bool {
			inodes = nil
			all, _ := filepath.Glob(filepath.Join(f.data, "overlays", "*.spare", "disk.img"))
			for _, p := range all {
				if st, err := os.Stat(p); err == nil {
					inodes = append(inodes, fmt.Sprint(st.Sys().(*syscall.Stat_t).Ino))
				}
			}
			f.trees.spares.mu.Lock()
			defer f.trees.spares.mu.Unlock()
			return len(inodes) == n && len(f.trees.spares.dirs) == n && !f.trees.spares.filling
		}, time.Minute, 10*time.Millisecond)
		return inodes
	}
	first, _ := prepare(8 << 20)
	spares := waiting(keptSpares)
	second, disk := prepare(8 << 20)
	require.Contains(t, spares, disk)
	waiting(keptSpares)
	other, disk := prepare(16 << 20)
	require.NotContains(t, spares, disk, "of another size")
	for _, o := range []Overlay{first, second, other} {
		require.NoError(t, f.trees.Remove(o.Sandbox))
	}
	waiting(keptSpares)

	// A process that was killed leaves its spares; the next one removes them.
	next, err := Open(f.data)
	require.NoError(t, err)
	defer next.Close()
	left, err := os.ReadDir(filepath.Join(f.data, "overlays"))
	require.NoError(t, err)
	require.Empty(t, left)
	f.trees.spares.dirs = nil // they were that process's
}
