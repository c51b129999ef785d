package demo

import (
	"strings"
	"testing"
	"time"
)

func TestBadOptionsAreRefusedWithTheRemedy(t *testing.T) {
	full := t.TempDir()
	write(t, full, "file", "x")
	tests := []struct {
		options Options
		want    string
	}{
		{Options{Guarantee: "exactly_once"}, "choose exactly_once_v2 or at_least_once"},
		{Options{Duration: time.Second}, "choose 5s"},
		{Options{Duration: -time.Second}, "choose 5s"},
		{Options{Workers: -1}, "choose 1 to 64"},
		{Options{Workers: 1000}, "choose 1 to 64"},
		{Options{Partitions: -1}, "choose 1 to 1024"},
		{Options{Brokers: "localhost"}, "is not HOST:PORT"},
		{Options{KeepDir: full}, "name a new or empty directory"},
	}
	for _, tt := range tests {
		_, err := tt.options.withDefaults()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want one that says %q", tt.options, err, tt.want)
		}
	}
}

func TestZeroOptionsAreUsable(t *testing.T) {
	o, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.Workers != 3 || o.Partitions != 4 || o.Duration != 30*time.Second || o.Seed == 0 || o.Executable == "" {
		t.Errorf("defaults: %+v", o)
	}
}
