package broker

import (
	"bytes"
	"context"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

func sampleMetadata() *metadata {
	return &metadata{
		ClusterID: "c", NextLogID: 3, NextProducerID: 1000, Starts: 2,
		Topics: map[string]*topicMeta{"t": {
			Name: "t", ID: topicID{1, 2}, LogIDs: []seglog.LogID{1, 2}, Configs: map[string]string{"k": "v"},
		}},
	}
}

// The golden bytes pin format version 1: directories made by earlier programs
// must stay readable.
func TestMetadataBytes(t *testing.T) {
	const golden = "48424d4401" + "1204fdf6" + "0000000163" + "00000003" + "00000000000003e8" + "00000002" + "00000001" +
		"0000000174" + "01020000000000000000000000000000" + "00000002" + "00000001" + "00000002" +
		"00000001" + "000000016b" + "0000000176"
	got := hex.EncodeToString(sampleMetadata().encode())
	if got != golden {
		t.Errorf("bytes\n got %s\nwant %s", got, golden)
	}
	want, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeMetadata(want)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m, sampleMetadata()) {
		t.Errorf("decoded %+v", m)
	}
}

func TestEveryDamagedMetadataByteIsRefused(t *testing.T) {
	good := sampleMetadata().encode()
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		if _, err := decodeMetadata(bad); err == nil {
			t.Errorf("byte %d changed and accepted", i)
		}
	}
	for n := range good {
		if _, err := decodeMetadata(good[:n]); err == nil {
			t.Errorf("cut to %d bytes and accepted", n)
		}
	}
}

func TestABrokerWithDamagedMetadataDoesNotStart(t *testing.T) {
	fs := vfs.NewMem()
	b := openBroker(t, testConfig(fs))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(fs, "data/metadata", []byte("HBMD\x01garbage")); err != nil {
		t.Fatal(err)
	}
	_, err := Open(context.Background(), testConfig(fs))
	if err == nil || !strings.Contains(err.Error(), "data/metadata") || !strings.Contains(err.Error(), "backup") {
		t.Errorf("error %v: want one that names the file and the remedy", err)
	}
}

func FuzzDecodeMetadata(f *testing.F) {
	f.Add(sampleMetadata().encode())
	f.Add((&metadata{}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMetadata(b)
		if err != nil {
			return
		}
		again, err := decodeMetadata(m.encode())
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("does not survive a round trip: %v\n%+v\n%+v", err, m, again)
		}
	})
}
