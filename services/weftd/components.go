package weftd

import (
	"fmt"
	"os"
	"strings"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// checkComponents refuses to start where something that a part needs is missing, before anything is begun:
// what is started first may outlive weftd. It names everything that is missing at once.
func (d *daemon) checkComponents() error {
	var programs, missing []string
	if d.cfg.has(schemas.Runtime) {
		programs = append(programs, "containerd", "containerd-shim-runc-v2", "runc")
		for flag, path := range map[string]string{"init": d.cfg.Init, "cli": d.cfg.CLI} {
			if st, err := os.Stat(path); err != nil || st.IsDir() {
				missing = append(missing, fmt.Sprintf("%s is no program; run `make build`, or name another with -%s", path, flag))
			}
		}
	}
	if d.cfg.has(schemas.Secrets) {
		_, external, err := d.vaultOptions()
		if err != nil {
			return err
		}
		if !external {
			programs = append(programs, "bao")
		}
	}
	for _, p := range programs {
		if _, err := toolchain.Find(p); err != nil {
			missing = append(missing, err.Error())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fault.New(fault.Unavailable, "this machine lacks what %s need: %s", strings.Join(d.cfg.Targets, ", "), strings.Join(missing, "; "))
}
