// Command payload is what the tests run inside a sandbox: it does what a shell can't, or not fast enough.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: payload mode args…")
		os.Exit(64)
	}
	mode, args := os.Args[1], os.Args[2:]
	switch mode {
	case "true":
	case "pattern": // N bytes in which every position can be checked
		pattern(num(args[0]))
	case "zeros":
		b := make([]byte, 64<<10)
		for n := num(args[0]); n > 0; n -= len(b) {
			must(os.Stdout.Write(b[:min(n, len(b))]))
		}
	case "swap": // two names: exchanges them for ever, as fast as it can
		fmt.Println("ready")
		for {
			check(exchange(args[0], args[1]))
		}
	case "syscall": // number and arguments; prints the errno
		var a [6]uintptr
		for i, s := range args[1:] {
			a[i] = uintptr(num(s))
		}
		_, _, e := syscall.Syscall6(uintptr(num(args[0])), a[0], a[1], a[2], a[3], a[4], a[5])
		fmt.Printf("%d\n", int(e))
	case "tree": // a fork tree that goes into sessions of its own, at each level, and stays
		tree(num(args[0]), num(args[1]))
	case "ignore": // SIGTERM and SIGHUP
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		fmt.Println("ready")
		time.Sleep(time.Hour)
	case "count": // bytes of stdin, and their sum
		n, sum := 0, uint64(0)
		r := bufio.NewReaderSize(os.Stdin, 1<<16)
		for {
			b, err := r.ReadByte()
			if err != nil {
				break
			}
			n, sum = n+1, sum*31+uint64(b)
		}
		fmt.Printf("%d %d\n", n, sum)
	case "dial": // address: sends stdin, half-closes, prints what comes
		c, err := net.Dial("tcp", args[0])
		check(err)
		_, err = io.Copy(c, os.Stdin)
		check(err)
		check(c.(*net.TCPConn).CloseWrite())
		_, err = io.Copy(os.Stdout, c)
		check(err)
	case "echo": // serves one connection: everything in upper case, when the peer has closed its side
		l, err := net.Listen(args[0], args[1])
		check(err)
		fmt.Println("listening")
		c, err := l.Accept()
		check(err)
		b, err := io.ReadAll(c)
		check(err)
		must(c.Write([]byte(strings.ToUpper(string(b)))))
		check(c.Close())
	case "bomb": // forks as fast as it can, for ever; orphans: each lives only to fork again
		for n := 0; args[0] == "sessions" || n < 2; {
			c := exec.Command("/proc/self/exe", mode, args[0])
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if c.Start() == nil {
				n++
			}
			time.Sleep(time.Millisecond)
		}
	case "eat": // MiB of memory, and keep them
		b := make([]byte, num(args[0])<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		time.Sleep(time.Hour)
	case "socket": // speaks on the node's socket as process 1 would, without the key
		c, err := net.Dial("unix", args[0])
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = c.Write([]byte("WFT\x01" + args[1] + strings.Repeat("n", 32)))
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		b := make([]byte, 64)
		n, err := io.ReadFull(c, b)
		if err == nil {
			_, _ = c.Write(make([]byte, 32))
			n, err = c.Read(b)
		}
		fmt.Println("refused:", n, err)
	default:
		fmt.Fprintln(os.Stderr, "no mode", mode)
		os.Exit(64)
	}
}

// pattern writes 8-byte words that count up.
func pattern(n int) {
	w := bufio.NewWriterSize(os.Stdout, 1<<16)
	var b [8]byte
	for i := 0; i < n/8; i++ {
		binary.BigEndian.PutUint64(b[:], uint64(i))
		must(w.Write(b[:]))
	}
	check(w.Flush())
}

func tree(depth, width int) {
	if depth > 0 {
		for range width {
			c := exec.Command("/proc/self/exe", "tree", strconv.Itoa(depth-1), strconv.Itoa(width))
			c.Stdout = os.Stdout
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			check(c.Start())
		}
	}
	fmt.Println("up")
	if depth > 0 && depth%2 == 0 {
		os.Exit(0) // its children are orphans
	}
	signal.Ignore(syscall.SIGTERM)
	time.Sleep(time.Hour)
}

func num(s string) int {
	n, err := strconv.ParseInt(s, 0, 64)
	check(err)
	return int(n)
}

func must(_ int, err error) { check(err) }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "payload:", err)
		os.Exit(1)
	}
}

func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
