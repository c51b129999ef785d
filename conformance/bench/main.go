// Command bench measures Hanbeon side by side with Apache Kafka on this machine:
// the same Java producer against both brokers, and the word count of package
// streams against that of Kafka Streams, both on the same Apache Kafka. Compare
// by ratio within one run only.
//
//	go run ./conformance/bench [-quick] [-broker=false] [-streams=false] [-rounds N] [-kafka-port PORT]
//
// It needs a JDK, and Maven for the first run: see conformance/kafka.sh.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
)

func main() {
	quick := flag.Bool("quick", false, "a tenth of the work: only to see that it runs")
	withBroker := flag.Bool("broker", true, "compare the brokers")
	withStreams := flag.Bool("streams", true, "compare the word counts")
	rounds := flag.Int("rounds", 1, "how often each figure is measured; the best is shown")
	port := flag.Int("kafka-port", 29092, "where the Apache Kafka node listens, and its controller on the next port")
	child := flag.String("wordcount", "", "run the word count of package streams with this configuration, as JSON")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *child != "" {
		err = runWordCount(ctx, *child)
	} else {
		err = compare(ctx, plan{quick: *quick, broker: *withBroker, streams: *withStreams, rounds: max(1, *rounds), kafkaPort: strconv.Itoa(*port)})
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// plan is what is measured.
type plan struct {
	quick, broker, streams bool
	rounds                 int
	kafkaPort              string
}

// size scales an amount of work.
func (p plan) size(n int) int {
	if p.quick {
		return n / 10
	}
	return n
}

func compare(ctx context.Context, p plan) (err error) {
	dir, err := os.MkdirTemp("", "hanbeon-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kafka, err := startKafka(ctx, p.kafkaPort)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kafka.stop()) }()
	if p.quick {
		fmt.Println("A quick run: start-up times dominate the figures; do not quote them.")
	}
	if p.broker {
		if err := compareBrokers(ctx, p, dir, kafka); err != nil {
			return err
		}
	}
	if p.streams {
		return compareStreams(ctx, p, dir, kafka)
	}
	return nil
}
