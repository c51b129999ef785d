package broker

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestCompatibilityDocumentListsWhatIsServed holds the table of
// docs/compatibility.md against the router, row by row.
func TestCompatibilityDocumentListsWhatIsServed(t *testing.T) {
	doc, err := os.ReadFile("../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[int16]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| (\w+) \| (\d+–\d+) \|`).FindAllStringSubmatch(string(doc), -1) {
		key, _ := strconv.ParseInt(m[1], 10, 16)
		if listed[int16(key)] != "" {
			t.Errorf("key %d stands there twice", key)
		}
		listed[int16(key)] = m[3]
		if want := kmsg.NameForKey(int16(key)); !equalName(m[2], want) {
			t.Errorf("key %d is called %s, want %s", key, m[2], want)
		}
	}
	for key, row := range servedAPIs() {
		if want := fmt.Sprintf("%d–%d", row.min, row.max); listed[key] != want {
			t.Errorf("%s (key %d): the document says %q, the router %q", kmsg.NameForKey(key), key, listed[key], want)
		}
		delete(listed, key)
	}
	for key := range listed {
		t.Errorf("key %d is in the document and not served", key)
	}
}

// equalName ignores kmsg's spelling of Id and Acl.
func equalName(a, b string) bool {
	return regexp.MustCompile(`(?i)^` + regexp.QuoteMeta(a) + `$`).MatchString(b)
}
