// Pause holds a pod's namespaces open: it waits until it is told to end, and
// collects the children that other processes of the pod leave to it.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	child := make(chan os.Signal, 1)
	signal.Notify(child, syscall.SIGCHLD)
	for {
		// Before the first signal, too: a child may have ended already.
		reap()
		select {
		case s := <-end:
			fmt.Fprintf(os.Stderr, "pause: ending on signal %q\n", s)
			return
		case <-child:
		}
	}
}

// reap collects every child that has ended.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
