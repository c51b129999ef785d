package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "hanbeon",
		Short: "Exactly-once stream processing for Go",
		Long: `Hanbeon (한번, "once") is exactly-once stream processing for Go.

  hanbeon demo      counts words in several processes while they and the broker
                    are being killed, and proves that each was counted once
  hanbeon broker    runs the durable broker, which speaks the Kafka protocol`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newBrokerCommand(), newDemoCommand(), newDemoWorkerCommand(), newVersionCommand())
	return root
}

// withParent returns a context that also ends when standard input does, which a
// process that a parent owns holds the other end of: it must not outlive it.
func withParent(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}
