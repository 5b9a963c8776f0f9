package debian

import "golang.org/x/sys/unix"

// scratch is where a tree is unpacked: in memory if that has room and may run programs, which
// halves the time; else in fallback.
func scratch(fallback string) string {
	const shm, room = "/dev/shm", 1 << 30
	var fs unix.Statfs_t
	if unix.Statfs(shm, &fs) != nil {
		return fallback
	}
	if fs.Flags&unix.ST_NOEXEC != 0 || fs.Bavail*uint64(fs.Bsize) < room {
		return fallback
	}
	return shm
}
