package demo

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPipeGetsEveryEventAndTheStatusNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := newConsole(&out, func(err error) { t.Error(err) })
		for range 12 {
			c.setStatus("going on")
			time.Sleep(500 * time.Millisecond)
		}
		c.event("kill -9 %s", "worker 1")
		c.endStatus()
		if got := strings.Count(out.String(), "going on\n"); got != 3 {
			t.Errorf("%d status lines in 6 s, want 3:\n%s", got, out.String())
		}
		if !strings.Contains(out.String(), "   6.0s  kill -9 worker 1\n") || strings.ContainsAny(out.String(), "\r\x1b") {
			t.Errorf("no plain line for the event:\n%q", out.String())
		}
	})
}

func TestNumbersAreReadable(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := number(n); got != want {
			t.Errorf("number(%d) = %q, want %q", n, got, want)
		}
	}
	if got := counted(1, "word") + ", " + counted(2, "word"); got != "1 word, 2 words" {
		t.Errorf("counted: %q", got)
	}
	if got := cut("한번 once", 4); got != "한번 o" {
		t.Errorf("cut: %q", got)
	}
}
