// Command runsc is gVisor's runtime, as its module has it. It is a main of ours only so that this
// module pins what it is built from.
package main

import "gvisor.dev/gvisor/runsc/cli/maincli"

func main() { maincli.Main() }
