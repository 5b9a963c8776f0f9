package definition

import (
	"fmt"
	"time"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Limits of a pool.
const (
	MaxPool    = 1000
	MaxPoolAge = 7 * 24 * time.Hour
)

// Pool checks a warm pool. Whether its template exists is looked up elsewhere.
func Pool(p *workspace.Pool) error {
	if err := schemas.CheckName("template", p.Name); err != nil {
		return err
	}
	if p.Alias != "" {
		if err := schemas.CheckName("alias", p.Alias); err != nil {
			return err
		}
	}
	if err := level(p.Level); err != nil {
		return err
	}
	if p.Max < 1 || p.Max > MaxPool {
		return fmt.Errorf(`field "max" must be 1 to %d, not %d`, MaxPool, p.Max)
	}
	if p.Min < 0 || p.Min > p.Max {
		return fmt.Errorf(`field "min" must be 0 to "max", which is %d, not %d`, p.Max, p.Min)
	}
	if p.MaxAgeMS != 0 && (p.MaxAgeMS < time.Second.Milliseconds() || p.MaxAgeMS > MaxPoolAge.Milliseconds()) {
		return fmt.Errorf(`field "max_age_ms" must be 1000 to %d (7 days), or 0 for an hour, not %d`, MaxPoolAge.Milliseconds(), p.MaxAgeMS)
	}
	return nil
}
