package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hanbeon/hanbeon/broker"
)

func newBrokerCommand() *cobra.Command {
	var dir, listen, advertise, durability string
	var owned bool
	cmd := &cobra.Command{
		Use:   "broker --dir DIR",
		Short: "Run the durable broker, which speaks the Kafka protocol",
		Long: `Run the durable broker on a directory, until it is interrupted. It prints
"listening on HOST:PORT" when it takes connections.

There is no authentication: listen on other than a loopback address only where
everyone who can reach it may read and write everything.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if owned {
				ctx = withParent(ctx)
			}
			cfg := broker.Config{
				Dir: dir, Listen: listen,
				Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
			}
			var err error
			if cfg.Durability, err = broker.ParseDurability(durability); err != nil {
				return err
			}
			if advertise != "" {
				if cfg.AdvertisedHost, cfg.AdvertisedPort, err = splitHostPort(advertise); err != nil {
					return fmt.Errorf("--advertise: %w", err)
				}
			}
			return runBroker(ctx, cmd, cfg)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "", "directory for the broker's data; made if it does not exist")
	flags.StringVar(&listen, "listen", "127.0.0.1:9092", "HOST:PORT to listen on; port 0 takes a free one")
	flags.StringVar(&advertise, "advertise", "", "HOST:PORT that clients are told to connect to (default: the address listened on; needed with 0.0.0.0)")
	flags.StringVar(&durability, "durability", "sync", "sync: what is acknowledged survives a power cut; interval, none: it survives a crash of the process only")
	flags.BoolVar(&owned, "with-parent", false, "end when standard input ends")
	flags.MarkHidden("with-parent")
	cmd.MarkFlagRequired("dir")
	return cmd
}

// runBroker runs a broker until ctx is done, or until it fails.
func runBroker(ctx context.Context, cmd *cobra.Command, cfg broker.Config) error {
	b, err := broker.Open(ctx, cfg)
	if err != nil {
		return err
	}
	_, runErr := fmt.Fprintf(cmd.OutOrStdout(), "listening on %s\n", b.Addr())
	if runErr == nil {
		select {
		case <-ctx.Done():
		case <-b.Failed(): // a write or a sync failed: only a restart helps
			runErr = b.Err()
		}
	}
	return errors.Join(runErr, b.Close())
}

func splitHostPort(address string) (string, int32, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not HOST:PORT: %w", address, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: the port is not a number from 0 to 65535", address)
	}
	return host, int32(port), nil
}
