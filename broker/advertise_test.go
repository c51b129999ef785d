package broker

import (
	"net"
	"strings"
	"testing"
)

// Clients connect to what Metadata tells them: an address that stands for all of
// a machine's would lead them to themselves.
func TestAnAddressThatClientsCannotUseIsNotAdvertised(t *testing.T) {
	for _, listen := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		b, err := Open(t.Context(), Config{Dir: t.TempDir(), Listen: listen})
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "AdvertisedHost") {
			t.Errorf("listening on %s: %v, want an error that names the remedy", listen, err)
		}
	}
	b, err := Open(t.Context(), Config{Dir: t.TempDir(), Listen: "0.0.0.0:0", AdvertisedHost: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, port, _ := net.SplitHostPort(b.Addr()); b.host != "127.0.0.1" || port == "0" || b.port == 0 {
		t.Errorf("%s:%d is advertised, listening on %s", b.host, b.port, b.Addr())
	}
}

func TestAnAddressInUseIsNamedWithARemedy(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = Open(t.Context(), Config{Dir: t.TempDir(), Listen: ln.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), ln.Addr().String()) || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("%v, want an error with the address and a remedy", err)
	}
}
