package main

import (
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hanbeon/hanbeon/internal/demo"
	"github.com/hanbeon/hanbeon/verify"
)

func newDemoCommand() *cobra.Command {
	var options demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Count words exactly once while everything is being killed, and prove it",
		Long: `Count the words of a text in several worker processes: lines are split, words
are sent to the worker that owns them, and counted in a store with a changelog.
Meanwhile workers are killed (kill -9), one is stopped until another has taken
its place and then let go on as a zombie, and the broker is killed.

At the end everything is read back and compared with a count in plain Go.

Exit status: 0 the guarantee was kept; 1 it was promised and not kept; 2 the
demo could not be run; 3 nothing was aborted, fenced or retried, so that the
run proves nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A zero in the options means the default, which nobody wants who writes 0.
			for _, name := range []string{"duration", "workers", "partitions"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == f.DefValue {
					return fmt.Errorf("--%s %s: want more than none; leave it out for the default", name, f.Value)
				}
			}
			// Where nobody reads on (| head), writing fails, and the run ends in
			// order: the signal would leave its directory behind.
			signal.Ignore(syscall.SIGPIPE)
			out, progress := cmd.OutOrStdout(), cmd.OutOrStdout()
			if options.JSON {
				progress = cmd.ErrOrStderr()
			}
			result, err := demo.Run(cmd.Context(), options, out, progress)
			if err != nil {
				return err
			}
			switch result.Outcome {
			case verify.OutcomeBroken:
				return exitError{exitBroken}
			case verify.OutcomeInconclusive:
				return exitError{exitInconclusive}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar((*string)(&options.Guarantee), "guarantee", string(verify.ExactlyOnceV2), "exactly_once_v2 or at_least_once")
	flags.StringVar(&options.Input, "input", "", "file or folder whose words are counted (default: Go source text found on this machine)")
	flags.DurationVar(&options.Duration, "duration", 0, "time over which the text is fed and the faults happen (default 30s)")
	flags.IntVar(&options.Workers, "workers", 0, "number of worker processes (default 3)")
	flags.IntVar(&options.Partitions, "partitions", 0, "number of partitions of the topics (default 4)")
	flags.StringVar(&options.KeepDir, "keep", "", "keep the state and the logs in this directory, which must be new or empty")
	flags.StringVar(&options.Brokers, "brokers", "", "HOST:PORT of a running Kafka to use instead of a broker of our own; then only workers are killed")
	flags.BoolVar(&options.JSON, "json", false, "print the result as JSON, and the progress to standard error")
	flags.Int64Var(&options.Seed, "seed", 0, "make the same plan of faults again (default: a new one)")
	return cmd
}
