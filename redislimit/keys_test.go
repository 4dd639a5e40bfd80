package redislimit

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/redistest"
)

var subjects = []string{"a", "alice", "a:b", "{a}", "}", "}{", "a}b", "1:a", "#" + strings.Repeat("A", 32), "\x00", "\xff", "é",
	strings.Repeat("k", longSubject), strings.Repeat("k", longSubject+1), strings.Repeat("k", 4096), "5:alice}t1m:login"}

// No subject can be written so that its keys are another's.
func TestKeysAreDistinct(t *testing.T) {
	s := &Store{namespace: "stint"}
	seen := map[string]string{}
	for _, subject := range subjects {
		for _, id := range []string{"t1m:", "t1m:login", "t1h:login", "p:login", "w1m/10:a}b"} {
			k := s.key(subject, id)
			if other, ok := seen[k]; ok {
				t.Errorf("%q and %q both have key %q", subject, other, k)
			}
			seen[k] = subject + " " + id
			if len(subject) > longSubject && len(k) > 128 {
				t.Errorf("a key of %d bytes for a long subject", len(k))
			}
		}
	}
}

// What is no key of ours is not read as one.
func TestForeignKeys(t *testing.T) {
	s := &Store{namespace: "a"}
	for _, key := range []string{"", "a", "a:{", "a:{}", "b:{1:x}p:", "a:b:{1:x}p:", "a:{1:xx}p:", "a:{2:x}p:", "a:{01:x}p:", "a:{+1:x}p:", "a:{-1:x}p:", "a:{0:}p:",
		"a:{1:x", "a:{1x}p:", "a:{doc:p}", "a:{doc:}p:", "a:{#abc", "a:{65:" + strings.Repeat("x", 65) + "}p:"} {
		if subject, _, id, ok := s.parse(key); ok {
			t.Errorf("%q was read as %q, %q", key, subject, id)
		}
	}
}

// The slot computed here is the one that Redis finds, and one for all limits of a
// subject.
func TestSlot(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes")
	c := server.Client(t)
	s := &Store{namespace: "stint"}
	for _, subject := range subjects {
		for _, id := range []string{"t1m:login", "w1m/10:a}b{c}"} {
			n, err := c.Do(t.Context(), c.B().ClusterKeyslot().Key(s.key(subject, id)).Build()).AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			if int64(slot(subject)) != n {
				t.Errorf("key %q: slot %d, Redis says %d", s.key(subject, id), slot(subject), n)
			}
		}
	}
}

func TestNamespace(t *testing.T) {
	for _, good := range []string{"stint", "a", "A-b.c_d:9", strings.Repeat("n", 64)} {
		if err := checkNamespace(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "a b", "a{b", "a}b", "a*", "é", strings.Repeat("n", 65)} {
		if checkNamespace(bad) == nil {
			t.Errorf("namespace %q was taken", bad)
		}
	}
}

func FuzzKey(f *testing.F) {
	for _, a := range subjects {
		f.Add(a, "b", "login")
	}
	s := &Store{namespace: "stint"}
	f.Fuzz(func(t *testing.T, a, b, name string) {
		if a == "" || b == "" {
			t.Skip("no key is empty")
		}
		id := "t1m:" + name
		if a != b && s.key(a, id) == s.key(b, id) {
			t.Fatalf("%q and %q both have key %q", a, b, s.key(a, id))
		}
		subject, hashed, parsed, ok := s.parse(s.key(a, id))
		if want := len(a) > longSubject; !ok || hashed != want || parsed != id || !want && subject != a {
			t.Fatalf("key %q was read as %q, %t, %q, %t", s.key(a, id), subject, hashed, parsed, ok)
		}
		if a == b && slot(a) != slot(b) || tag(a) == "" || tag(a)[0] == '}' {
			t.Fatalf("tag %q of %q", tag(a), a)
		}
	})
}
