package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// epoch is the time of every file, so that the same packages give the same image.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// file is one entry of the tree: its header without a name, and where its content is.
type file struct {
	header  tar.Header
	content io.ReaderAt // of header.Size bytes from offset
	offset  int64
}

// tree is a root file system by clean absolute path.
type tree map[string]*file

// Rootfs reads the tree that Extract wrote, as a tar of size bytes, applies the recipe, and writes the
// root file system as a tar whose every byte follows from the packages and the recipe.
func Rootfs(r Recipe, in io.ReaderAt, size int64, out io.Writer) error {
	t, err := read(in, size)
	if err != nil {
		return err
	}
	if err := t.removePackages(r.Without); err != nil {
		return err
	}
	if err := t.drop(r.Drop, r.Keep); err != nil {
		return err
	}
	if r.CABundle != "" {
		if err := t.bundle(r.CABundle); err != nil {
			return err
		}
	}
	if err := t.add(r); err != nil {
		return err
	}
	return t.write(out)
}

// counter knows how far a tar reader has got: the content of an entry starts there.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// read indexes a tar. Device nodes are left out (a container gets its own), hard links become files
// of their own, setuid bits and extended attributes go: nothing inside may gain rights but what the recipe names.
func read(in io.ReaderAt, size int64) (tree, error) {
	t := tree{}
	var hardlinks []string
	at := &counter{r: io.NewSectionReader(in, 0, size)}
	for reader := tar.NewReader(at); ; {
		h, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the tree: %w", err)
		}
		name := path.Clean("/" + h.Name)
		if h.Typeflag == tar.TypeSymlink && slices.Contains(intoUsr, name) {
			continue // add makes these
		}
		name = usrMerged(name)
		f := &file{content: in, offset: at.n, header: tar.Header{Typeflag: h.Typeflag, Mode: h.Mode & 0o1777, Uid: h.Uid, Gid: h.Gid}}
		switch h.Typeflag {
		case tar.TypeReg:
			f.header.Size = h.Size
		case tar.TypeSymlink:
			f.header.Linkname = h.Linkname
		case tar.TypeLink:
			f.header.Linkname = usrMerged(path.Clean("/" + h.Linkname))
			hardlinks = append(hardlinks, name)
		case tar.TypeDir:
		default:
			continue
		}
		// The directory that /bin became must not hide what is in it, nor be hidden by it.
		if old := t[name]; old == nil || old.header.Typeflag == tar.TypeDir {
			t[name] = f
		}
	}
	for _, name := range hardlinks {
		target := t[t[name].header.Linkname]
		if target == nil || target.header.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%s is a hard link to what is not a file", name)
		}
		t[name] = target
	}
	delete(t, "/")
	return t, nil
}

// intoUsr lists what is a link into /usr in Debian since 12, though packages of 12 still ship files there.
var intoUsr = []string{"/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"}

func usrMerged(name string) string {
	for _, dir := range intoUsr {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return "/usr" + name
		}
	}
	return name
}

const dpkg = "/var/lib/dpkg"

// removePackages removes the files that only these packages own, and their records.
func (t tree) removePackages(names []string) error {
	owners := map[string]int{}
	for name := range t {
		if path.Dir(name) == dpkg+"/info" && path.Ext(name) == ".list" {
			lines, err := t.lines(name)
			if err != nil {
				return err
			}
			for _, line := range lines {
				owners[usrMerged(line)]++
			}
		}
	}
	for _, name := range names {
		list := dpkg + "/info/" + name + ".list"
		lines, err := t.lines(list)
		if err != nil {
			return fmt.Errorf("package %s is not in the tree, so it can't be left out", name)
		}
		delete(t, list)
		for _, line := range lines {
			line = usrMerged(line)
			if owners[line]--; owners[line] == 0 && t[line] != nil && t[line].header.Typeflag != tar.TypeDir {
				delete(t, line)
			}
		}
	}
	return t.forget(names)
}

// forget removes packages from dpkg's record.
func (t tree) forget(names []string) error {
	text, err := t.bytes(dpkg + "/status")
	if err != nil {
		return err
	}
	var stanzas []string
	for stanza := range strings.SplitSeq(string(text), "\n\n") {
		first, _, _ := strings.Cut(strings.TrimSpace(stanza), "\n")
		if name, ok := strings.CutPrefix(first, "Package: "); ok && !slices.Contains(names, name) {
			stanzas = append(stanzas, strings.TrimSpace(stanza)+"\n")
		}
	}
	slices.Sort(stanzas)
	t.put(dpkg+"/status", 0o644, 0, []byte(strings.Join(stanzas, "\n")))
	return nil
}

// drop removes what matches a pattern, with all below it, unless keep matches.
func (t tree) drop(patterns, keep []string) error {
	matches := func(patterns []string, name string) bool {
		for p := name; p != "/"; p = path.Dir(p) {
			for _, pattern := range patterns {
				if ok, _ := filepath.Match(pattern, p); ok { // checked when it was loaded
					return true
				}
			}
		}
		return false
	}
	for name := range t {
		if matches(patterns, name) && !matches(keep, name) {
			delete(t, name)
		}
	}
	return nil
}

// bundle writes all trusted certificates into one file, as update-ca-certificates would.
func (t tree) bundle(to string) error {
	var names []string
	for name := range t {
		if strings.HasPrefix(name, "/usr/share/ca-certificates/") && path.Ext(name) == ".crt" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("no certificates for %s: the recipe needs the package ca-certificates", to)
	}
	slices.Sort(names)
	var all bytes.Buffer
	for _, name := range names {
		text, err := t.bytes(name)
		if err != nil {
			return err
		}
		all.Write(bytes.TrimSpace(text))
		all.WriteByte('\n')
	}
	t.put(to, 0o644, 0, all.Bytes())
	return nil
}

// add puts in what the recipe states itself.
func (t tree) add(r Recipe) error {
	t.addParents()
	for _, dir := range intoUsr {
		if t["/usr"+dir] != nil {
			t[dir] = &file{header: tar.Header{Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: "usr" + dir}}
		}
	}
	for _, e := range r.Dirs {
		mode, err := e.mode()
		if err != nil {
			return err
		}
		t[e.Path] = &file{header: tar.Header{Typeflag: tar.TypeDir, Mode: mode, Uid: e.Owner, Gid: e.Owner}}
	}
	for _, e := range r.Files {
		mode, err := e.mode()
		if err != nil {
			return err
		}
		text := ""
		for _, line := range e.Content {
			text += line + "\n"
		}
		t.put(e.Path, mode, e.Owner, []byte(text))
	}
	for name, target := range r.Links {
		t[name] = &file{header: tar.Header{Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: target}}
	}
	for _, name := range r.Setuid {
		f := t[name]
		if f == nil || f.header.Typeflag != tar.TypeReg || f.header.Uid != 0 {
			return fmt.Errorf("%s can't be setuid: it is not a file of root's in the tree", name)
		}
		f.header.Mode |= 0o4000
	}
	return nil
}

func (e Entry) mode() (int64, error) {
	mode, err := strconv.ParseInt(e.Mode, 8, 32)
	if err != nil || mode < 0 || mode > 0o1777 {
		return 0, fmt.Errorf("mode %q is not octal up to 1777", e.Mode)
	}
	return mode, nil
}

func (t tree) put(name string, mode int64, owner int, content []byte) {
	t[name] = &file{content: bytes.NewReader(content),
		header: tar.Header{Typeflag: tar.TypeReg, Mode: mode, Uid: owner, Gid: owner, Size: int64(len(content))}}
}

func (t tree) bytes(name string) ([]byte, error) {
	f := t[name]
	if f == nil || f.header.Typeflag != tar.TypeReg {
		return nil, fmt.Errorf("%s is not a file in the tree", name)
	}
	return io.ReadAll(io.NewSectionReader(f.content, f.offset, f.header.Size))
}

func (t tree) lines(name string) ([]string, error) {
	text, err := t.bytes(name)
	return strings.Split(strings.TrimSpace(string(text)), "\n"), err
}

// addParents adds the directories that hold something but have no entry of their own.
func (t tree) addParents() {
	for _, name := range slices.Collect(maps.Keys(t)) {
		for dir := path.Dir(name); dir != "/" && t[dir] == nil; dir = path.Dir(dir) {
			t[dir] = &file{header: tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}}
		}
	}
}

// write writes the tree in the order of its paths, with every directory before what is in it.
func (t tree) write(out io.Writer) error {
	t.addParents()
	w := tar.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		f := t[name]
		h := f.header
		h.Name, h.ModTime, h.Format = strings.TrimPrefix(name, "/"), epoch, tar.FormatPAX
		if h.Typeflag == tar.TypeDir {
			h.Name += "/"
		}
		if err := w.WriteHeader(&h); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.Copy(w, io.NewSectionReader(f.content, f.offset, h.Size)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return w.Close()
}

// WriteRootfs applies Rootfs to the tar at in, and writes the one at out.
func WriteRootfs(r Recipe, in, out string) (err error) {
	from, err := os.Open(in)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, to.Close()) }()
	return Rootfs(r, from, info.Size(), to)
}
