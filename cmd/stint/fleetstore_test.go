package main

import (
	"fmt"
	"strings"
	"testing"
)

// While their Redis is away, instances keep what they have and answer; a ban is in
// force where it was made, and who pushes rules is told why not. A Redis that comes
// back empty is given again what the fleet had, and what was changed meanwhile.
func TestFleetWithoutStore(t *testing.T) {
	f := startFleet(t, 3)
	f.do(0, nil, "rules", "push", f.write("pushed.yaml", limited(2, "")))
	f.do(1, nil, "ban", "add", "--network", "198.51.100.0/24", "--reason", "flood")
	f.do(2, nil, "switch", "client", "shadow")
	f.awaitRules(1)
	f.await("it sees both changes", func(i int) bool { return f.status(i).Controls.Number == 2 })

	f.redis.Stop(t)
	for i, s := range f.all {
		for range 4 {
			if code := checked(t, s, `{"client":"192.0.2.1"}`); code != 200 {
				t.Errorf("instance %d: a check in shadow mode: %d", i, code)
			}
		}
		if code := checked(t, s, `{"client":"198.51.100.1"}`); code != 429 {
			t.Errorf("instance %d: one who is banned: %d", i, code)
		}
		if s := f.status(i); s.Rules.Number != 1 || s.Controls.Number != 2 || s.Store.OK {
			t.Errorf("instance %d: %+v", i, s)
		}
		want(t, f.at(i), 0, []string{"client  shadow", "enforce"}, "switch")
		want(t, f.at(i), 0, []string{"in force at this instance only, because the store does not answer"}, "ban", "add", "--network", fmt.Sprintf("203.0.113.%d", i))
		want(t, f.at(i), 1, []string{"The store does not answer"}, "rules", "push", f.write("more.yaml", limited(9, "")), "--after", "1")
	}

	f.redis.Restart(t)
	f.await("the store decides again", func(i int) bool { return f.status(i).Store.OK })
	// One that has seen nothing of it learns it from the Redis.
	f.await("it is restored", func(int) bool {
		return strings.Contains(f.restored(), "document=controls") && strings.Contains(f.restored(), "document=rules")
	})
	f.join()
	if s := f.status(3); s.Rules.Number == 0 || s.Rules.Version != f.status(0).Rules.Version {
		t.Errorf("one that came later: %+v", s.Rules)
	}
	f.checks(`{"client":"198.51.100.1"}`, 429, 429, 429, 429)
	for i := range 3 {
		f.awaitChecks(fmt.Sprintf(`{"client":"203.0.113.%d"}`, i), 429)
	}
	f.do(3, []string{"flood"}, "ban", "list")
	f.do(3, []string{"client  shadow  shadow"}, "switch")
	f.do(3, nil, "switch", "client", "file", "--reason", "it goes on from there")
	f.await("it goes on from there", func(i int) bool { _, text := f.at(i)("switch"); return !strings.Contains(text, "shadow") })
}

// restored is what the instances say of what they restored.
func (f *fleet) restored() string {
	var all []string
	for _, s := range f.all {
		for line := range strings.Lines(s.log.String()) {
			if strings.Contains(line, "the store lost documents of the fleet; restored") {
				all = append(all, line)
			}
		}
	}
	return strings.Join(all, "")
}

// Rules cannot be shared with nobody.
func TestFleetOfMemory(t *testing.T) {
	path := configured(t, fleetSettings+fleetRules)
	code, _, errs := call("", "serve", "--config", path)
	if code != 1 || !strings.Contains(errs, "rules: fleet needs a store that the fleet shares: set store, or --store, to the address of a Redis") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
