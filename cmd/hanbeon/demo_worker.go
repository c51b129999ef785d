package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hanbeon/hanbeon/internal/demo"
)

// newDemoWorkerCommand is how the demo starts its workers; it is no command for
// people.
func newDemoWorkerCommand() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:    "demo-worker",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var cfg demo.WorkerConfig
			if err := json.Unmarshal([]byte(config), &cfg); err != nil {
				return fmt.Errorf("--config: %w", err)
			}
			return demo.RunWorker(withParent(cmd.Context()), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "a demo.WorkerConfig as JSON")
	return cmd
}
