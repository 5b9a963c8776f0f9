// Command testrun runs go test, and runs once more, alone, what failed.
//
// A machine that is busy with other things makes tests of real containers, servers and clocks fail that are right.
// What fails twice is broken, and so is a run with many failures; what passes the second time is named at the end as
// unsteady, so that it is mended instead of being run again for ever. The output is go test's own.
//
//	go run ./tools/testrun [-most N] -- -race -p 2 ./...
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("testrun", flag.ContinueOnError)
	flags.SetOutput(stderr)
	most := flags.Int("most", 6, "with more failed packages than `N`, nothing is run again")
	if flags.Parse(args) != nil {
		return 2
	}
	options, packages := split(flags.Args())
	failed, err := goTest(append(options, packages...), stdout, stderr)
	if err == nil {
		return 0
	}
	if len(failed) == 0 || len(failed) > *most {
		fmt.Fprintln(stderr, "testrun:", err)
		return 1
	}
	status := 0
	var unsteady []string
	for _, f := range failed {
		fmt.Fprintf(stderr, "\ntestrun: once more, alone: %s\n", f)
		if _, err := goTest(append(append(options, "-count=1"), f.arguments()...), stdout, stderr); err != nil {
			status = 1
			continue
		}
		unsteady = append(unsteady, f.String())
	}
	for _, u := range unsteady {
		fmt.Fprintf(stderr, "testrun: UNSTEADY, failed once and then passed: %s\n", u)
	}
	return status
}

// split parts go test's flags from the packages: these come last, and begin with no dash.
func split(args []string) (options, packages []string) {
	for i := len(args); i > 0; i-- {
		if strings.HasPrefix(args[i-1], "-") || i > 1 && takesValue(args[i-2]) {
			return args[:i:i], args[i:]
		}
	}
	return nil, args
}

// takesValue knows the flags that are given with a value apart.
func takesValue(flag string) bool {
	switch flag {
	case "-p", "-timeout", "-run", "-count", "-tags", "-parallel":
		return true
	}
	return false
}

// failure is a package that failed, with its tests where it is known which.
type failure struct {
	pkg   string
	tests []string
}

func (f failure) String() string {
	if len(f.tests) == 0 {
		return f.pkg
	}
	return f.pkg + " " + strings.Join(f.tests, " ")
}

func (f failure) arguments() []string {
	if len(f.tests) == 0 {
		return []string{f.pkg}
	}
	return []string{"-run", "^(" + strings.Join(f.tests, "|") + ")$", f.pkg}
}

// goTest runs it and gives what failed, as its output tells.
func goTest(args []string, stdout, stderr io.Writer) ([]failure, error) {
	cmd := exec.Command("go", append([]string{"test"}, args...)...)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	failed, err := failures(io.TeeReader(out, stdout))
	if werr := cmd.Wait(); werr != nil {
		return failed, fmt.Errorf("go test: %w", werr)
	}
	return failed, err
}

// failures reads go test's output. The names of failed tests stand before the line of their package. A panic, a
// test that ran out of time and a leak found at the end name no test, and the whole package counts.
func failures(r io.Reader) ([]failure, error) {
	var all []failure
	var tests []string
	whole := false
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			tests = append(tests, strings.Fields(name)[0])
		}
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "after the tests:") || strings.HasPrefix(line, "FAIL: ") {
			whole = true
		}
		f := strings.Fields(line)
		switch {
		case len(f) >= 2 && strings.HasPrefix(line, "FAIL\t"):
			if whole {
				tests = nil
			}
			all = append(all, failure{f[1], tests})
			tests, whole = nil, false
		case strings.HasPrefix(line, "ok  \t"):
			tests, whole = nil, false
		}
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}
