package main

import "golang.org/x/sys/unix"

func init() {
	for name, nr := range map[string]uintptr{
		"iopl": unix.SYS_IOPL, "ioperm": unix.SYS_IOPERM, "kexec_file_load": unix.SYS_KEXEC_FILE_LOAD, "modify_ldt": unix.SYS_MODIFY_LDT,
		"x32_getpid": 0x40000000 + unix.SYS_GETPID, "unknown": 999, "uselib": unix.SYS_USELIB, "ustat": unix.SYS_USTAT,
	} {
		numbers[name] = nr
	}
}
