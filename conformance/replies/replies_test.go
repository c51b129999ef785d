//go:build conformance

// Package replies_test sends the same scripted requests to Apache Kafka and to a
// Hanbeon broker, and compares the replies field by field.
//
// A scenario is a Go function that talks to one peer: raw requests, one
// connection per named client, no retries. It runs once on each peer. What is
// compared is the list of replies, with everything normalised that two brokers
// cannot have in common: producer ids, topic ids, member ids, hosts, times.
//
// Where Hanbeon differs on purpose the scenario says so at the step (see
// script.differs), with both values and the reason; a difference that is no
// longer there fails the test as well.
//
// HANBEON_KAFKA names the Kafka node, HOST:PORT: ./kafka.sh start prints it.
// Its auto.create.topics.enable must be false and its
// group.initial.rebalance.delay.ms 0, as kafka.sh has them.
package replies_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hanbeon/hanbeon/broker"
)

// scenario is one script; it gets names of its own, so that scenarios do not
// touch each other.
type scenario struct {
	name string
	run  func(*script)
}

var verbose = flag.Bool("steps", false, "print every step with Kafka's reply")

func TestReplies(t *testing.T) {
	kafka, ours := startPeers(t, broker.Faults{})
	// Kafka verifies the transactions of several requests together, and maps the
	// answer for all of them as the first one's version wants it.
	for _, sc := range verificationScenarios {
		t.Run("alone/"+sc.name, func(t *testing.T) { compare(t, runOn(kafka, sc), runOn(ours, sc)) })
	}
	t.Run("together", func(t *testing.T) {
		for _, sc := range slices.Concat(
			produceScenarios, sequenceScenarios, transactionScenarios, endTxnScenarios, markerScenarios,
			offsetScenarios, groupScenarios, fetchScenarios, listOffsetsScenarios, adminScenarios, versionScenarios,
		) {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				compare(t, runOn(kafka, sc), runOn(ours, sc))
			})
		}
	})
}

// runOn runs a scenario on one peer in the background; the result is there when
// the returned function is called.
func runOn(p *peer, sc scenario) func() *script {
	s := newScript(p, sc.name)
	var done sync.WaitGroup
	done.Go(func() {
		defer s.close()
		defer func() {
			if r := recover(); r != nil {
				stop, ok := r.(stopped)
				if !ok {
					panic(r)
				}
				s.stop = stop.Error()
			}
		}()
		sc.run(s)
	})
	return func() *script { done.Wait(); return s }
}

// compare fails the test where the two runs differ otherwise than announced.
func compare(t *testing.T, kafkaRun, ourRun func() *script) {
	t.Helper()
	kafka, ours := kafkaRun(), ourRun()
	var out strings.Builder
	for i := range max(len(kafka.steps), len(ours.steps)) {
		if i >= len(kafka.steps) || i >= len(ours.steps) {
			fmt.Fprintf(&out, "the runs have %d steps on Kafka and %d on ours\n", len(kafka.steps), len(ours.steps))
			break
		}
		k, o := kafka.steps[i], ours.steps[i]
		bad := unexpected(k, o)
		if len(bad) > 0 {
			t.Errorf("step %d differs", i+1)
		}
		if len(bad) == 0 && !*verbose {
			continue
		}
		fmt.Fprintf(&out, "%d. %s\n", i+1, k.request)
		if o.request != k.request {
			fmt.Fprintf(&out, "   sent to ours: %s\n", o.request)
		}
		for _, b := range bad {
			fmt.Fprintf(&out, "   DIFFERENT %s\n", b)
		}
		fmt.Fprintf(&out, "   kafka: %s\n", k.reply())
		if len(bad) > 0 {
			fmt.Fprintf(&out, "   ours:  %s\n", o.reply())
		}
	}
	for _, s := range []*script{kafka, ours} {
		if s.stop != "" {
			t.Errorf("the run on %s stopped after %d steps: %s", s.peer.name, len(s.steps), s.stop)
		}
	}
	if out.Len() > 0 && (t.Failed() || *verbose) {
		t.Logf("%s", out.String())
	}
}

// unexpected lists the differences of two replies that are not announced, and
// the announced ones that are not there.
func unexpected(kafka, ours step) (out []string) {
	left := slices.Clone(kafka.known)
	for _, d := range differences(kafka.lines, ours.lines) {
		i := slices.IndexFunc(left, func(k difference) bool { return k.path == d.path && k.kafka == d.kafka && k.ours == d.ours })
		if i < 0 {
			out = append(out, fmt.Sprintf("%s: kafka %s, ours %s", d.path, d.kafka, d.ours))
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, k := range left {
		out = append(out, fmt.Sprintf("%s: no longer kafka %s, ours %s (%s): remove the exception", k.path, k.kafka, k.ours, k.reason))
	}
	return out
}

// absent is the value of a field that only one of the replies has.
const absent = "absent"

func differences(kafka, ours []line) (out []difference) {
	have := map[string]string{}
	for _, l := range ours {
		have[l.path] = l.value
	}
	for _, l := range kafka {
		value, ok := have[l.path]
		if !ok {
			value = absent
		}
		delete(have, l.path)
		if value != l.value {
			out = append(out, difference{path: l.path, kafka: l.value, ours: value})
		}
	}
	for _, l := range ours {
		if value, ok := have[l.path]; ok {
			out = append(out, difference{path: l.path, kafka: absent, ours: value})
		}
	}
	return out
}
