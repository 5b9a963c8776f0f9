// Package needs is for tests that can't run everywhere. One for which something is missing is skipped, and says what; under
// WEFT_TEST_REQUIRE=1, which CI sets, it fails instead, so that nothing is left out in silence.
package needs

import (
	"errors"
	"os"
	"testing"
)

// All ends the test if one of these says that something is missing.
func All(t testing.TB, missing ...error) {
	t.Helper()
	err := errors.Join(missing...)
	if err == nil {
		return
	}
	if os.Getenv("WEFT_TEST_REQUIRE") == "1" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// Root ends the test unless it runs as root.
func Root(t testing.TB) {
	t.Helper()
	All(t, RootMissing())
}

// RootMissing says that the test does not run as root.
func RootMissing() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return errors.New("root is needed: run the tests with sudo")
}
