package broker

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

// The first request for a group creates __consumer_offsets. Those that come at
// the same moment must not find a coordinator that has not started.
func TestFirstUseOfTheGroupCoordinatorByManyClients(t *testing.T) {
	for range 20 {
		b, err := Open(context.Background(), testConfig(vfs.NewMem()))
		if err != nil {
			t.Fatal(err)
		}
		var clients [8]*client
		for i := range clients {
			clients[i] = dial(t, b)
		}
		codes := make([]int16, len(clients))
		var wg sync.WaitGroup
		for i, c := range clients {
			wg.Go(func() {
				for n := 0; n < 50 && codes[i] == 0; n++ {
					_, codes[i] = c.committed(fmt.Sprint("g", n), "in", 0)
				}
			})
		}
		wg.Wait()
		for i, code := range codes {
			if code != 0 {
				t.Fatalf("client %d: %v", i, kerr.ErrorForCode(code))
			}
		}
		b.Crash()
	}
}
