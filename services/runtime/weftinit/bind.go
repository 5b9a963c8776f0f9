package weftinit

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// BindCommand is the first argument of weft-init as a program that shows one directory at another, "bind <from> <to>",
// and ends. The node runs it with CAP_SYS_ADMIN in a sandbox whose kernel does not see what is mounted on a mount
// that it has already: gVisor holds the directory itself. Whoever lacks the capability can do nothing with it.
const BindCommand = "bind"

func bind(args []string, stderr io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintln(stderr, "weft-init: bind takes two directories")
		return 2
	}
	if err := unix.Mount(args[0], args[1], "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		fmt.Fprintf(stderr, "weft-init: show %s at %s: %v\n", args[0], args[1], err)
		return 1
	}
	return 0
}
