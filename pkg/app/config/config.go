// Package config fills a program's flags from, in this order: the command line, the environment, a
// configuration file, the defaults. A flag "data-dir" is WEFT_DATA_DIR in the environment and data-dir in
// the file, which is YAML with one level.
package config

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/weftmesh/weft/pkg/fault"
)

// Prefix of environment variables.
const Prefix = "WEFT_"

// FileFlag is the flag that names the configuration file; Parse reads it first.
const FileFlag = "config"

// Parse parses args into f and fills what they leave open. env holds NAME=value pairs. An unknown key in
// the file is an error: a misspelt setting that is ignored in silence costs hours.
func Parse(f *flag.FlagSet, args, env []string) error {
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fault.Wrap(err, fault.Invalid, "%v; see --help", err)
	}
	if f.NArg() > 0 {
		return fault.New(fault.Invalid, "unexpected argument %q; see --help", f.Arg(0))
	}
	given := map[string]bool{}
	f.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	vars := environment(env)
	file := ""
	if fl := f.Lookup(FileFlag); fl != nil {
		if v, ok := vars[envName(FileFlag)]; ok && !given[FileFlag] {
			if err := fl.Value.Set(v); err != nil {
				return err
			}
		}
		file = fl.Value.String()
	}
	settings, err := read(file)
	if err != nil {
		return err
	}
	if err := unknown(f, settings, file); err != nil {
		return err
	}
	var errs []error
	f.VisitAll(func(fl *flag.Flag) {
		if given[fl.Name] || fl.Name == FileFlag {
			return
		}
		from := "environment variable " + envName(fl.Name)
		v, ok := vars[envName(fl.Name)]
		if !ok {
			from = file
			v, ok = settings[fl.Name]
		}
		if ok {
			if err := fl.Value.Set(v); err != nil {
				errs = append(errs, fault.New(fault.Invalid, "%s: %s = %q: %v", from, fl.Name, v, err))
			}
		}
	})
	return errors.Join(errs...)
}

func environment(env []string) map[string]string {
	out := map[string]string{}
	for _, e := range env {
		if k, v, ok := strings.Cut(e, "="); ok && strings.HasPrefix(k, Prefix) && v != "" {
			out[k] = v
		}
	}
	return out
}

func envName(flagName string) string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

func read(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "there is no configuration file %s", file)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "configuration file %s can't be read", file)
	}
	var raw map[string]any
	if err := yaml.Unmarshal(b, &raw); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "configuration file %s is not YAML: %v", file, err)
	}
	out := map[string]string{}
	for k, v := range raw {
		switch v.(type) {
		case map[string]any, []any:
			return nil, fault.New(fault.Invalid, "configuration file %s: %s must be one value", file, k)
		}
		out[k] = fmt.Sprint(v)
	}
	return out, nil
}

func unknown(f *flag.FlagSet, settings map[string]string, file string) error {
	var bad []string
	for k := range settings {
		if f.Lookup(k) == nil {
			bad = append(bad, k)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	sort.Strings(bad)
	return fault.New(fault.Invalid, "configuration file %s: unknown setting %s; see --help for the names", file, strings.Join(bad, ", "))
}
