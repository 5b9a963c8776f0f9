package supervisor_test

import (
	"os/exec"
	"syscall"
)

// asHostUser runs a program on the host as uid.
func asHostUser(path string, uid int, args ...string) *exec.Cmd {
	c := exec.Command(path, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return c
}
