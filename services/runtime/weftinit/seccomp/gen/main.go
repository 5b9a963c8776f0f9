// Command gen writes the compiled filters of package seccomp, one Go file per architecture.
package main

import (
	"fmt"
	"os"
)

func main() {
	for _, a := range architectures {
		src, err := generate(a)
		if err == nil {
			err = os.WriteFile(fileName(a), src, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}
