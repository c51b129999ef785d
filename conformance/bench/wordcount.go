package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/streams"
)

// Shape of the text that is counted: as many distinct words as a small language
// has in daily use, the frequent ones much more frequent.
const (
	vocabulary   = 2000
	wordsPerLine = 5
	workers      = 2
)

// wordCountConfig is what the process that counts is told.
type wordCountConfig struct {
	Brokers, Input, Output, StateDir string
	Words                            int64
}

func compareStreams(ctx context.Context, p plan, dir string, kafka *node) error {
	lines := p.size(300_000)
	input := fmt.Sprintf("word-count-bench-%d", time.Now().UnixMilli())
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.address), kgo.DefaultProduceTopic(input), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, partitions, 1, nil, input); err != nil {
		return fmt.Errorf("creating topic %s: %w", input, err)
	}
	if err := preload(ctx, client, lines); err != nil {
		return err
	}
	fmt.Printf("\nWord count, exactly_once_v2, %d workers, %d partitions, %d lines of %d words, every update sent on, on the same Apache Kafka\n\n",
		workers, partitions, lines, wordsPerLine)
	printHeader("", "Kafka Streams", "Hanbeon")
	words := int64(lines) * wordsPerLine
	best := make([]figures, 2)
	for round := range p.rounds {
		for i, run := range []func(output, state string) (figures, error){
			func(output, state string) (figures, error) {
				return java(ctx, "WordCountBench", kafka.address, input, output, strconv.Itoa(partitions),
					strconv.FormatInt(words, 10), strconv.Itoa(workers), state)
			},
			func(output, state string) (figures, error) {
				return wordCountProcess(ctx, wordCountConfig{kafka.address, input, output, state, words})
			},
		} {
			output := fmt.Sprintf("%s-%d-%d", input, round, i)
			if _, err := admin.CreateTopic(ctx, partitions, 1, nil, output); err != nil {
				return fmt.Errorf("creating topic %s: %w", output, err)
			}
			f, err := run(output, filepath.Join(dir, output))
			if err != nil {
				return err
			}
			if best[i] == nil || f["updates_per_second"] > best[i]["updates_per_second"] {
				best[i] = f
			}
		}
	}
	for _, name := range []string{"updates_per_second", "resident_mib"} {
		printRow(strings.ReplaceAll(name, "_", " "), best[0][name], best[1][name])
	}
	return nil
}

// preload writes the text; the same at every run.
func preload(ctx context.Context, client *kgo.Client, lines int) error {
	random := rand.New(rand.NewPCG(7, 0))
	words := make([]string, vocabulary)
	for i := range words {
		words[i] = "word" + strconv.FormatInt(int64(i)*7919%100003, 36)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for range lines {
		line := make([]string, wordsPerLine)
		for i := range line {
			line[i] = words[min(vocabulary-1, int(math.Abs(random.NormFloat64())*500))]
		}
		client.Produce(ctx, kgo.StringRecord(strings.Join(line, " ")), func(_ *kgo.Record, err error) {
			if err != nil {
				fail(err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("preloading the text: %w", errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

// wordCountProcess runs the word count in a process of its own, as Java's is.
func wordCountProcess(ctx context.Context, cfg wordCountConfig) (figures, error) {
	config, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, err := output(exec.CommandContext(ctx, executable, "-wordcount", string(config)))
	if err != nil {
		return nil, err
	}
	return parseFigures(out)
}

// runWordCount is the body of that process.
func runWordCount(ctx context.Context, config string) error {
	var cfg wordCountConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	b := streams.NewBuilder()
	lines := streams.Stream[string, string](b, cfg.Input)
	words := streams.FlatMapValues(lines, func(line string) []string { return strings.Split(line, " ") })
	byWord := streams.GroupBy(words, func(_, word string) string { return word })
	streams.Count(byWord, "counts").ToStream().To(cfg.Output)
	topology, err := b.Build()
	if err != nil {
		return err
	}
	app, err := streams.New(topology, streams.Config{
		ApplicationID: cfg.Output, Brokers: []string{cfg.Brokers}, Guarantee: streams.ExactlyOnceV2,
		StateDir: cfg.StateDir, Workers: workers, ReplicationFactor: 1,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	start := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx) }()
	if err := awaitUpdates(ctx, cfg, ended); err != nil {
		return err
	}
	seconds := time.Since(start).Seconds()
	resident, err := residentMiB(os.Getpid())
	if err != nil {
		return err
	}
	fmt.Printf("updates_per_second %.3f\nresident_mib %.3f\n", float64(cfg.Words)/seconds, resident)
	cancel()
	return <-ended
}

// awaitUpdates reads the sink at read_committed until it holds every update.
func awaitUpdates(ctx context.Context, cfg wordCountConfig, ended <-chan error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers), kgo.ConsumeTopics(cfg.Output),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer client.Close()
	for got := int64(0); got < cfg.Words; {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the sink holds %d of %d updates: %w", got, cfg.Words, err)
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the word count ended early: %w", errors.Join(err, errors.New("see its log")))
		default:
		}
		if errs := fetches.Errors(); len(errs) > 0 && !slices.ContainsFunc(errs, func(e kgo.FetchError) bool { return kgo.IsRetryableBrokerErr(e.Err) }) {
			return errs[0].Err
		}
		got += int64(fetches.NumRecords())
	}
	return nil
}
