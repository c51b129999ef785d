package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// node is a broker under measurement.
type node struct {
	name    string
	address string
	pid     int
	ready   time.Duration // from its start until it listened
	stop    func() error
}

func startKafka(ctx context.Context, port string) (*node, error) {
	if _, err := kafkaScript(ctx, "jars"); err != nil { // fetched first: not part of the start
		return nil, err
	}
	start := time.Now()
	address, err := kafkaScript(ctx, "start", port)
	if err != nil {
		return nil, err
	}
	n := &node{name: "Apache Kafka", address: strings.TrimSpace(address), ready: time.Since(start)}
	n.stop = func() error {
		_, err := kafkaScript(context.WithoutCancel(ctx), "stop", port)
		return err
	}
	pid, err := kafkaScript(ctx, "pid", port)
	if err == nil {
		n.pid, err = strconv.Atoi(strings.TrimSpace(pid))
	}
	if err != nil {
		return nil, errors.Join(err, n.stop())
	}
	return n, nil
}

// kafkaScript runs conformance/kafka.sh from the root of the module.
func kafkaScript(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "conformance/kafka.sh", args...))
}

func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// startHanbeon builds the command and runs `hanbeon broker`.
func startHanbeon(ctx context.Context, dir string) (*node, error) {
	executable := filepath.Join(dir, "hanbeon")
	if _, err := output(exec.CommandContext(ctx, "go", "build", "-o", executable, "./cmd/hanbeon")); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "broker.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(executable, "broker", "--dir", filepath.Join(dir, "broker"), "--listen", "127.0.0.1:0")
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, fmt.Errorf("the broker said %q, %v; see %s", line, err, log.Name())
	}
	n := &node{name: "Hanbeon", address: address, pid: cmd.Process.Pid, ready: time.Since(start)}
	go io.Copy(io.Discard, stdout)
	n.stop = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		return cmd.Wait()
	}
	return n, nil
}

// residentMiB is the memory of a process that is resident now.
func residentMiB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kiB, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kiB / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in the status of process %d", pid)
}

// figures are the numbers that a Java program printed, by name.
type figures map[string]float64

// java runs one of the programs of conformance/java.
func java(ctx context.Context, program string, args ...string) (figures, error) {
	args = append([]string{"run", "conformance/java/" + program + ".java"}, args...)
	out, err := kafkaScript(ctx, args...)
	if err != nil {
		return nil, err
	}
	return parseFigures(out)
}

func parseFigures(out string) (figures, error) {
	f := make(figures)
	for line := range strings.Lines(out) {
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		number, err := strconv.ParseFloat(value, 64)
		if !found || err != nil {
			continue // a log line
		}
		f[name] = number
	}
	if len(f) == 0 {
		return nil, fmt.Errorf("no figures in %q", out)
	}
	return f, nil
}

// load is one way of producing.
type load struct {
	name           string
	records        int
	perTransaction int
	figures        []string
}

const (
	valueBytes = 100
	partitions = 4
)

func compareBrokers(ctx context.Context, p plan, dir string, kafka *node) (err error) {
	hanbeon, err := startHanbeon(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hanbeon.stop()) }()

	loads := []load{
		{"idempotent", p.size(2_000_000), 0, []string{"records_per_second", "read_committed_per_second"}},
		{"transactions of 1,000", p.size(1_000_000), 1000, []string{"records_per_second", "commit_p50_ms", "commit_p99_ms"}},
		{"transactions of 1", p.size(3_000), 1, []string{"transactions_per_second", "commit_p50_ms", "commit_p99_ms"}},
	}
	fmt.Printf("\nOne Java producer, %d-byte values, %d partitions; ours with fsync, Kafka's as it comes (without)\n\n", valueBytes, partitions)
	printHeader("", kafka.name, hanbeon.name)
	for _, l := range loads {
		best := make([]figures, 2)
		for range p.rounds {
			for i, n := range []*node{kafka, hanbeon} {
				f, err := produceBench(ctx, n, l, n == kafka)
				if err != nil {
					return fmt.Errorf("%s on %s: %w", l.name, n.name, err)
				}
				if best[i] == nil || f["records_per_second"] > best[i]["records_per_second"] {
					best[i] = f
				}
			}
		}
		for _, name := range l.figures {
			printRow(l.name+": "+strings.ReplaceAll(name, "_", " "), best[0][name], best[1][name])
		}
	}
	printRow("ready after the start, ms", float64(kafka.ready.Milliseconds()), float64(hanbeon.ready.Microseconds())/1000)
	var resident [2]float64
	for i, n := range []*node{kafka, hanbeon} {
		if resident[i], err = residentMiB(n.pid); err != nil {
			return err
		}
	}
	printRow("resident memory after all this, MiB", resident[0], resident[1])
	return nil
}

func printHeader(what, left, right string) {
	fmt.Printf("| %-46s | %14s | %14s | ratio |\n|---|--:|--:|--:|\n", what, left, right)
}

func printRow(what string, left, right float64) {
	fmt.Printf("| %-46s | %14.1f | %14.1f | %5.2f |\n", what, left, right, right/left)
}

// produceBench runs the Java producer. On Apache Kafka it is given three tries:
// Java's producer can send EndTxn before the batches of its transaction (see
// txn.Config.EarlyCommitMs), and dies of INVALID_TXN_STATE if Kafka has just
// finished writing the last transaction's end.
func produceBench(ctx context.Context, n *node, l load, apacheKafka bool) (f figures, err error) {
	tries := 1
	if apacheKafka {
		tries = 3
	}
	for range tries {
		f, err = java(ctx, "ProduceBench", n.address, strconv.Itoa(l.records), strconv.Itoa(valueBytes),
			strconv.Itoa(l.perTransaction), strconv.Itoa(partitions))
		if err == nil || !strings.Contains(err.Error(), "InvalidTxnStateException") {
			break
		}
	}
	return f, err
}
