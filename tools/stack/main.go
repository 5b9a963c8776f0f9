// Command stack provisions what Weft runs but does not link: Debian packages, containerd, runc,
// gVisor, OpenBao, FerretDB for tests, and the images of the built-in templates. It makes only what is
// missing, in parallel, once, and says what it is doing.
//
//	stack -for demo    what a purpose needs: demo, test, bench or all
//	stack -list        what there is: name, version, where, size
//	stack -json        one JSON object a line instead of words, on standard output
//	stack -again base  make these anew, though they are there (comma-separated)
//
// Exit status: 0 if everything is there, 1 if something can't be had, 2 for a wrong command line,
// 130 when interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/tools/stack/internal/provision"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // a second interrupt ends us at once
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	purpose string
	list    bool
	json    bool
	again   string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("stack", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.purpose, "for", "all", "`purpose`: demo, test, bench or all")
	flags.BoolVar(&o.list, "list", false, "show what there is, and make nothing")
	flags.BoolVar(&o.json, "json", false, "one JSON object a line on standard output")
	flags.StringVar(&o.again, "again", "", "`names` of what to make anew")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is not expected; see stack -help", flags.Arg(0))
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr *os.File) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var p purpose
	if err == nil {
		p, err = findPurpose(o.purpose)
	}
	if err != nil {
		fmt.Fprintln(stderr, "stack:", err)
		return 2
	}
	root, err := repository()
	if err != nil {
		fmt.Fprintln(stderr, "stack:", err)
		return 2
	}
	c, err := newCatalog(root)
	if err != nil {
		fmt.Fprintln(stderr, "stack:", err)
		return 1
	}
	store := provision.Store{Dir: toolchain.Cache()}
	if err := forget(store, c, o.again); err != nil {
		fmt.Fprintln(stderr, "stack:", err)
		return 2
	}
	stages := p.plan(c, func(s provision.Stage) bool { return provision.Look(ctx, store, s).Outcome.OK() })
	if o.list {
		report(stdout, o.json, provision.LookAll(ctx, store, stages))
		return 0
	}
	return provide(ctx, o, p, store, stages, stdout, stderr)
}

// provide makes what is missing and shows it. People read stderr when stdout is for a program.
func provide(ctx context.Context, o options, p purpose, store provision.Store, stages []provision.Stage, stdout, stderr *os.File) int {
	people := stdout
	if o.json {
		people = stderr
	}
	missing := unmade(provision.LookAll(ctx, store, stages))
	if len(missing) == 0 && !o.json {
		fmt.Fprintf(people, "Everything for %s is already there, in %s and on this machine.\n", p.aim, tilde(store.Dir))
		return 0
	}
	show := newDisplay(people)
	show.begin(headline(p, store, missing), stages)
	results, err := provision.Run(ctx, store, stages, builds(), show)
	show.end()
	if o.json {
		report(stdout, true, results)
	}
	if err == nil {
		fmt.Fprintf(people, "Everything for %s is there.\n", p.aim)
		return 0
	}
	if ctx.Err() != nil {
		fmt.Fprintf(people, "Interrupted. What was finished stays, nothing half-made is left; %s goes on from there.\n", p.command)
		return 130
	}
	explain(people, results, p.command)
	return 1
}

func headline(p purpose, store provision.Store, missing []provision.Stage) string {
	text := "Getting what is missing for " + p.aim
	if d := provision.Estimate(missing, builds()); d > 0 {
		text += fmt.Sprintf(": about %s on two cores, once", rounded(d))
	}
	return text + ". It goes to " + tilde(store.Dir) + "."
}

func unmade(results []provision.Result) []provision.Stage {
	var stages []provision.Stage
	for _, r := range results {
		if !r.Outcome.OK() {
			stages = append(stages, r.Stage)
		}
	}
	return stages
}

// explain says for each thing that can't be had why, what to do, and what the build said last.
func explain(out io.Writer, results []provision.Result, again string) {
	for _, r := range results {
		if r.Outcome.OK() {
			continue
		}
		advice := provision.Explain(r, again)
		fmt.Fprintf(out, "\n%s\n  What to do: %s\n", advice.What, advice.Do)
		if plain := new(provision.Plain); errors.As(r.Err, &plain) {
			continue // the build said nothing more
		}
		if lines := provision.Tail(r.Log, 12); len(lines) > 0 {
			fmt.Fprintf(out, "  The end of %s:\n", tilde(r.Log))
			for _, line := range lines {
				fmt.Fprintf(out, "    | %s\n", shorten(line, 300))
			}
		}
	}
}

// forget makes the named things be made anew.
func forget(store provision.Store, c catalog, names string) error {
	for name := range strings.SplitSeq(names, ",") {
		if name == "" {
			continue
		}
		if _, known := c.stages[name]; !known {
			return fmt.Errorf("-again: there is nothing called %q; see stack -list", name)
		}
		if err := store.Forget(name); err != nil {
			return err
		}
	}
	return nil
}

// repository finds the root of the working tree: the folder of go.work, here or above.
func repository() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.work in %s or above: run it inside the repository", start)
		}
	}
}

// tilde writes a path as people write it.
func tilde(path string) string {
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		if rest, ok := strings.CutPrefix(path, home+"/"); ok {
			return "~/" + rest
		}
	}
	return path
}
