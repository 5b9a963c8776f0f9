// Package supervisor is the node's side of weft-init, process 1 of every sandbox.
//
// A Server owns one directory on the node. Each sandbox that is added to it gets a directory of its
// own there, with a listening unix socket and a one-time key; that directory is bind-mounted
// read-only into the sandbox, weft-init reads the key, dials the socket, and both sides prove to each
// other that they hold the key. From then on the node runs processes, touches files, dials into the
// sandbox, and receives the connections that weft-init carries out of it.
//
//	server, err := supervisor.NewServer(dir, supervisor.Options{Logger: log})
//	sandbox, err := server.Add(id, supervisor.Owner{UID: hostUID, GID: hostGID})
//	sandbox.SetForwardHandler(func(ctx context.Context, name string, conn net.Conn) { … })
//	launch := sandbox.Launch(initBinary, forwards...)   // args, env, mounts, capabilities of process 1
//	…create and start the container…
//	err = sandbox.WaitConnected(ctx)
//	process, err := sandbox.Start(ctx, supervisor.ProcessSpec{Argv: …, Identity: …})
//	for {
//		event, err := process.Next(ctx)                // output with offsets, at last the exit, then io.EOF
//	}
//
// # Restarts
//
// Nothing that runs depends on the node's process. weft-init keeps dialling; the keys lie in the
// server's directory. A new process calls NewServer on the same directory, Known for what is there,
// Add for each that it wants to keep and Remove for the others, then List and Attach with the offsets
// up to which it has the output: nothing is missing and nothing comes twice, as far as the
// process's OutputMode promises. A reader that has a name (AttachAs) is waited for under it. While it lives, a Process survives a broken connection the same way
// by itself.
//
// # Concurrency and errors
//
// All methods may be called from any goroutine, but Next only from one at a time, and WriteStdin
// likewise. Calls wait until the sandbox is connected, or their ctx is done. Errors are of package
// fault: invalid, not_found, conflict (the id is taken, the target exists), denied (by the payload's
// permissions), exhausted (no more processes, connections, memory or disk in the sandbox),
// unavailable (the connection broke and the outcome is not known, or the sandbox was removed), deadline.
package supervisor
