package tree

import (
	"fmt"

	"github.com/weftmesh/weft/pkg/mounts"
)

// unmountBelow takes away every mount at or below dir, the last first, and checks that none is left. A mount that a
// sandbox still sees lives on there until that sandbox ends.
func unmountBelow(dir string) error {
	for range 100 { // somebody may be mounting there
		n, err := mounts.Detach(dir)
		if err != nil || n == 0 {
			return err
		}
	}
	return fmt.Errorf("%s is mounted again and again", dir)
}
