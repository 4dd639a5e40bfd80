package redislimit_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// What is said is heard once by all of a namespace, and by no other.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	for _, servers := range [][]*redistest.Server{{redistest.Start(t)}, redistest.StartCluster(t, 3)} {
		url := servers[0].URL()
		if len(servers) > 1 {
			url = strings.Replace(url, "redis://", "redis+cluster://", 1)
		}
		in := func(namespace string) *redislimit.Documents {
			s, err := redislimit.Connect(t.Context(), url, redislimit.Options{Namespace: namespace})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			if s.Namespace() != namespace {
				t.Errorf("namespace %q, want %q", s.Namespace(), namespace)
			}
			return s.Documents()
		}
		one, two, other := in("shop"), in("shop"), in("mail")
		said := func(d *redislimit.Documents, text string, want ...string) {
			t.Helper()
			got, err := d.Announce(t.Context(), text)
			slices.Sort(got)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		}
		said(one, "a", "a")
		said(two, "a", "a")
		said(other, "c", "c")
		said(two, "b", "a", "b")
	}
}

// What nobody says any more is forgotten.
func TestAnnouncedIsForgotten(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	d := open(t, server.URL()).Documents()
	for _, text := range []string{"a", "b"} {
		if _, err := d.Announce(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	clock.Jump(t, 31*time.Second)
	if got, err := d.Announce(t.Context(), "b"); err != nil || !slices.Equal(got, []string{"b"}) {
		t.Errorf("%q, %v", got, err)
	}
}
