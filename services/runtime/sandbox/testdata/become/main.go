// Command become runs a command as another user, as sudo does: it is meant to be setuid.
package main

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

func main() {
	uid, _ := strconv.Atoi(os.Args[1])
	gid, _ := strconv.Atoi(os.Args[2])
	for _, err := range []error{syscall.Setgroups(nil), syscall.Setgid(gid), syscall.Setuid(uid)} {
		if err != nil {
			println(err.Error())
			os.Exit(1)
		}
	}
	path, err := exec.LookPath(os.Args[3])
	if err == nil {
		err = syscall.Exec(path, os.Args[3:], os.Environ())
	}
	println(err.Error())
	os.Exit(1)
}
