// Command bench measures Weft and, in the same run, what it is to be compared with: the floor, and the
// plain tools that people would use instead. `make bench` runs it; ONLY=name,… picks some; QUICK=1 does fewer rounds; JSON=1
// prints one JSON object a line. It starts a mesh of its own, and speaks to it as any client does. Each result says what was
// aimed at, and whether it was met, on the machine that it ran on: figures are worth comparing within one run only.
//
// # Of sandboxes
//
//	claim_warm(_high)    CreateSandbox and the output of echo, from a pool that is full; one after the other
//	claim_burst          the same by 100 clients at once, from a pool of 100: the time of each since the start of all
//	sandbox_cold(_high)  the same without a pool; beside ctr run, runc run or runsc run, podman and docker where they are
//	exec_running(_high)  /bin/true in a sandbox that runs; beside fork and exec on the host, and ctr task exec
//	stdout_mesh          1 GiB of zeros from a command to the client, by the stream protocol with its flow control
//	stdout_node          the same to the node's process only, without a mesh: the supervisor's own benchmark
//	file_write, _read    100 MiB to and from /tmp of a sandbox, through the mesh
//	pause_resume         both, each until the record says so
//	fork                 ForkSandbox of a sandbox that has changed 1,000 files, until the fork runs
//	idle_sandbox(_high)  available memory of the machine before and after a pool of 1,000 (100 high) was filled, by their
//	                     number; density is how many of them 24 GiB hold, by that
//	refill_cpu(_high)    CPU time of the whole machine while a pool is filled, less what it uses anyway, by member
//	soak_left, _rate     of the last make soak SOAK=n: what is left by the counts before and after, and its speed
//
// # Of the rest
//
// bus_* are of the embedded NATS; task_*, snapshot_incremental, daemon_idle_rss of the whole mesh; memory_search of one service.
package main
