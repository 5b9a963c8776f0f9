package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// glob expands patterns; one that matches nothing stays as it is, to be refused by name.
func glob(patterns []string) []string {
	var out []string
	for _, p := range patterns {
		m, _ := filepath.Glob(p)
		if len(m) == 0 {
			m = []string{p}
		}
		out = append(out, m...)
	}
	return out
}

// readAll opens each file and reads of it, or lists it. What is there and says nothing is empty.
func readAll(patterns []string) []string {
	var r refusals
	for _, p := range glob(patterns) {
		n, err := readSome(p)
		if err == nil && n == 0 {
			r = append(r, empty)
			continue
		}
		if err == nil && kernels(p) && sentry() {
			r = append(r, sentrys)
			continue
		}
		r.add(p, err)
	}
	return r
}

// look is read for what is known to be readable.
func look(patterns []string) []string {
	words := readAll(patterns)
	for i, w := range words {
		if strings.HasPrefix(w, reached) {
			words[i] = seen
		}
	}
	return words
}

// sentry says whether the kernel is gVisor's: its files of /proc, /sys and /dev are its own then.
var sentry = sync.OnceValue(func() bool {
	b, _ := os.ReadFile("/proc/version")
	return bytes.Contains(b, []byte("gVisor")) || bytes.Contains(b, []byte("gvisor")) || bytes.Contains(b, []byte("Sun Jan 10 15:06:54 PST 2016"))
})

// kernels is a path of the kernel's that is no process's.
func kernels(path string) bool {
	rest, proc := strings.CutPrefix(path, "/proc/")
	first, _, _ := strings.Cut(rest, "/")
	_, err := strconv.Atoi(first)
	return proc && err != nil && first != "self" || strings.HasPrefix(path, "/sys/") || strings.HasPrefix(path, "/dev/")
}

func readSome(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		names, err := f.Readdirnames(-1)
		return len(names), err
	}
	n, err := unix.Read(fd, make([]byte, 64))
	return max(n, 0), err
}

// writeAll opens each file for writing, and writes its own first bytes, or nothing, to it.
func writeAll(args []string) []string {
	var r refusals
	for _, p := range glob(args[1:]) {
		fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Write(fd, []byte(args[0]))
			_ = unix.Close(fd)
		}
		r.add(p, err)
	}
	return r
}

// createAll makes a file in each directory.
func createAll(dirs []string) []string {
	var r refusals
	for _, d := range glob(dirs) {
		p := filepath.Join(d, ".hostile")
		fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err == nil {
			_ = unix.Close(fd)
			_ = unix.Unlink(p)
		}
		r.add(p, err)
	}
	return r
}

// makeAll makes devices: kind, major, minor, paths.
func makeAll(args []string) []string {
	mode := map[string]uint32{"char": unix.S_IFCHR, "block": unix.S_IFBLK}[args[0]] | 0o666
	var r refusals
	for _, p := range args[3:] {
		r.add(p, unix.Mknod(p, mode, int(unix.Mkdev(uint32(number(args[1])), uint32(number(args[2]))))))
	}
	return r
}

// away tries to put something else in the place of each path: removed, renamed, covered by a link.
func away(paths []string) []string {
	var r refusals
	for _, p := range paths {
		r.add(p, unix.Unlink(p))
		r.add(p, unix.Rename(p, p+".away"))
		r.add(p, unix.Rename(p, "/tmp/away"))
		tmp := "/tmp/covers" + strings.ReplaceAll(p, "/", "-")
		_ = os.Symlink("/etc/passwd", tmp)
		r.add(p, unix.Rename(tmp, p))
		r.add(p, unix.Symlink("/etc/passwd", filepath.Join(filepath.Dir(p), ".hostile")))
		r.add(p, unix.Link("/proc/self/exe", p))
	}
	return r
}

// writable walks the trees and gives what could be opened for writing, or in which a file could be made. What
// is on a mount given after "but" may be.
func writable(args []string) []string {
	trees, but, _ := cut(args, "but")
	var r refusals
	for _, root := range trees {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			_, number := strconv.Atoi(filepath.Base(path))
			if slices.Contains(but, path) || filepath.Dir(path) == "/proc" && number == nil { // processes are asked about one by one
				return filepath.SkipDir
			}
			if err != nil || d.Type()&(fs.ModeSymlink|fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDevice) != 0 {
				return nil
			}
			flags := unix.O_WRONLY | unix.O_NONBLOCK | unix.O_CLOEXEC
			if d.IsDir() {
				path, flags = filepath.Join(path, ".hostile"), flags|unix.O_CREAT|unix.O_EXCL
			}
			if fd, err := unix.Open(path, flags, 0o600); err == nil {
				if !isDevice(fd) { // bound over a file, as /dev/null over what is masked; devices are asked about apart
					r.add(path, nil)
				}
				_ = unix.Close(fd)
			}
			return nil
		})
	}
	return r.or(none)
}

func isDevice(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && (st.Mode&unix.S_IFMT == unix.S_IFCHR || st.Mode&unix.S_IFMT == unix.S_IFBLK)
}

func cut(args []string, at string) (before, after []string, found bool) {
	i := slices.Index(args, at)
	if i < 0 {
		return args, nil, false
	}
	return args[:i], args[i+1:], true
}

// find looks everywhere for files of these names and opens them for writing.
func find(names []string) []string {
	var r refusals
	_ = filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if path == "/proc" {
			return filepath.SkipDir
		}
		if slices.Contains(names, d.Name()) {
			fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				_ = unix.Close(fd)
			}
			r.add(path, err)
		}
		return nil
	})
	return r.or(none)
}

// harmless devices are all that a sandbox is to have: by their numbers.
var harmless = map[[2]uint32]bool{{1, 3}: true, {1, 5}: true, {1, 7}: true, {1, 8}: true, {1, 9}: true, {5, 0}: true, {5, 2}: true}

// devices walks everything for device files other than the harmless ones and terminals of its own.
func devices([]string) []string {
	var r refusals
	_ = filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if path == "/proc" || path == "/dev/pts" {
			return filepath.SkipDir
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR && st.Mode&unix.S_IFMT != unix.S_IFBLK {
			return nil
		}
		n := [2]uint32{unix.Major(st.Rdev), unix.Minor(st.Rdev)}
		if st.Mode&unix.S_IFMT == unix.S_IFCHR && (harmless[n] || n == [2]uint32{0, 0}) { // 0:0 is a whiteout
			return nil
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
			if sentry() {
				r = append(r, sentrys)
				return nil
			}
		}
		r.add(path, err)
		return nil
	})
	return r.or(none)
}

// links follows every link of /proc/<pid> that leads to a root or a directory, of every process, to a file of the node.
func links(args []string) []string {
	var r refusals
	marker := args[0]
	patterns := []string{"/proc/[0-9]*/root", "/proc/[0-9]*/cwd", "/proc/[0-9]*/task/*/root", "/proc/[0-9]*/task/*/cwd", "/proc/self/root", "/proc/thread-self/root",
		"/proc/self/fd/*", "/proc/[0-9]*/fd/*"}
	for _, l := range glob(patterns) {
		for _, up := range []string{"", strings.Repeat("/..", 12)} {
			b, err := os.ReadFile(l + up + marker)
			if err == nil && !bytes.Contains(b, []byte(args[1])) {
				err = syscall.ENOENT
			}
			r.add(l, err)
		}
	}
	return r
}

// cwd is run with a working directory that somebody chose: it says whether that leads out.
func cwd(args []string) []string {
	up := strings.Repeat("../", 12)
	if b, err := os.ReadFile(up + strings.TrimPrefix(args[0], "/")); err == nil && bytes.Contains(b, []byte(args[1])) {
		return []string{reached + ":cwd"}
	}
	dir, err := os.Readlink("/proc/self/cwd")
	if err != nil {
		return []string{word(err)}
	}
	if strings.Contains(dir, "unreachable") {
		return []string{reached + ":" + dir}
	}
	return []string{own}
}

// descriptors says what it was started with beyond the three that every process has.
func descriptors([]string) []string {
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return []string{word(err)}
	}
	var r refusals
	for _, e := range es {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || slices.Contains([]string{"0", "1", "2"}, e.Name()) {
			continue // the listing's own, closed since
		}
		if strings.HasPrefix(to, "anon_inode:") { // Go's poller
			continue
		}
		r.add(e.Name()+to, nil)
	}
	return r.or(none)
}

// handle opens files by their numbers on the file system instead of by name: all of the host's, were it let.
func handle([]string) []string {
	var r refusals
	for _, dir := range []string{"/", "/etc/hosts", "/tmp", "/.weft/init"} {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		for ino := range 3 {
			h := unix.NewFileHandle(1, []byte{byte(ino + 1), 0, 0, 0, 0, 0, 0, 0})
			got, err := unix.OpenByHandleAt(fd, h, unix.O_RDONLY)
			if err == nil {
				_ = unix.Close(got)
			}
			r.add(dir, err)
		}
		_ = unix.Close(fd)
	}
	return r
}

// program opens what runs as process 1, and what it runs itself as, for writing.
func program(paths []string) []string {
	var r refusals
	for _, p := range paths {
		for _, flags := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_TRUNC} {
			fd, err := unix.Open(p, flags|unix.O_CLOEXEC, 0)
			if err == nil {
				_ = unix.Close(fd)
			}
			r.add(p, err)
		}
		r.add(p, unix.Chmod(p, 0o777))
		r.add(p, unix.Setxattr(p, "security.capability", make([]byte, 20), 0))
	}
	return r
}

// swap puts, as fast as it can until it is killed, a directory and links to other places in turn at path.
func swap(args []string) []string {
	path, targets := args[0], args[1:]
	for i := 0; ; i++ {
		_ = os.RemoveAll(path)
		if i%2 == 0 {
			_ = os.Mkdir(path, 0o755)
			_ = os.WriteFile(filepath.Join(path, "victim"), []byte("inside"), 0o644)
		} else {
			_ = os.Symlink(targets[i/2%len(targets)], path)
		}
	}
}

// fill writes to each directory until it is full, and clears up.
func fill(dirs []string) []string {
	var r refusals
	b := make([]byte, 1<<20)
	for _, d := range dirs {
		p := filepath.Join(d, "fill")
		f, err := os.OpenFile(p, os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			for range 4096 { // 4 GiB: more than any of them may hold
				if _, err = f.Write(b); err != nil {
					break
				}
			}
			_ = f.Close()
			_ = os.Remove(p)
		}
		r.add(d, err)
	}
	return r
}

// inodes makes links in each directory until there can be no more, and clears up. Long ones: no block of the file
// system's is counted for them where they are kept beside their names.
func inodes(dirs []string) []string {
	var r refusals
	nowhere := strings.Repeat("x", 4000)
	for _, d := range dirs {
		sub := filepath.Join(d, "inodes")
		err := os.Mkdir(sub, 0o700)
		for i := 0; err == nil && i < 1<<20; i++ {
			err = unix.Symlink(nowhere, filepath.Join(sub, "f"+decimal(i)))
		}
		_ = os.RemoveAll(sub)
		r.add(d, err)
	}
	return r
}

// openFiles opens until there can be no more.
func openFiles([]string) []string {
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for range 1 << 20 {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
		if err != nil {
			return []string{word(err)}
		}
		fds = append(fds, fd)
	}
	return []string{reached}
}

// setuidFile makes programs that are to run as somebody else, and runs them.
func setuidFile(dirs []string) []string {
	var r refusals
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return []string{word(err)}
	}
	defer self.Close()
	for _, d := range dirs {
		p := filepath.Join(d, "setuid")
		f, err := os.OpenFile(p, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
		if err != nil {
			r.add(d, err)
			continue
		}
		_, _ = self.Seek(0, io.SeekStart)
		_, err = io.Copy(f, self)
		err = errors.Join(err, f.Close(), os.Chmod(p, 0o6755))
		if err == nil {
			r = append(r, runOne0(p, "become"))
		} else {
			r.add(d, err)
		}
		_ = os.Remove(p)
	}
	return r
}

// structs as system calls want them.
func pointer[T any](v *T) uintptr { return uintptr(unsafe.Pointer(v)) }
