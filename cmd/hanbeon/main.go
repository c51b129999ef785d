// Command hanbeon runs the broker and the demo that proves exactly-once while
// everything is being killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit statuses beside 0.
const (
	exitBroken       = 1 // a guarantee was promised and not kept
	exitFailed       = 2 // the command could not do its work
	exitInconclusive = 3 // the run was clean, but nothing put the guarantee to the test
)

// exitError ends the command with a status and without a further message.
type exitError struct{ status int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	// The first signal ends the command in order. It also gives the signals back,
	// so that a second one ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)

	root := newRootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.status
	default:
		fmt.Fprintf(os.Stderr, "hanbeon: %v\n", err)
		return exitFailed
	}
}
