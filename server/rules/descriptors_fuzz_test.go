package rules_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// Any file of descriptors is read or refused with a place, and any call of what was read asks what a
// Limiter accepts, is refused as malformed, or asks nothing. Reading it again gives the same rules.
func FuzzDescriptors(f *testing.F) {
	add := func(file string) { f.Add([]byte(file), "user", "ann", "path", "/api/x", int64(1), int64(5), int64(60)) }
	for _, path := range []string{"testdata/descriptors/bad.txt", "testdata/descriptors/good.txt"} {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, story := range strings.Split("\n"+string(data), "\n=== ")[1:] {
			_, file, _ := strings.Cut(story, "\n")
			file, _, _ = strings.Cut(file, "---\n")
			add(file)
		}
	}
	add(shop)
	add(kinds)
	f.Fuzz(func(t *testing.T, data []byte, key1, value1, key2, value2 string, cost, amount, unit int64) {
		s := parsedAgain(t, data)
		if s == nil {
			return
		}
		entries := []rules.Entry{{Key: key1, Value: value1}, {Key: key2, Value: value2}}
		d := &rules.Descriptors{Domain: s.Rules[0].Descriptor.Domain, List: []rules.Descriptor{
			{Entries: entries[:1], Cost: cost}, {Entries: entries, Cost: 1}, {Entries: entries[1:], GiveBack: true, Cost: cost},
			{Entries: entries, Cost: 1, Override: &rules.DescriptorLimit{Amount: amount, Unit: rules.Unit(unit), Times: cost}},
		}}
		for _, r := range s.Rules[:min(len(s.Rules), 20)] { // entries that find rules
			one := rules.Descriptor{Cost: 1}
			for _, e := range r.Descriptor.Path {
				if e.Value == "" {
					e.Value = value1
				}
				one.Entries = append(one.Entries, e)
			}
			d.List = append(d.List, one)
		}
		var m rules.Plan
		if err := s.Asks(&rules.Input{Descriptors: d}, &m); err != nil {
			if !errors.Is(err, stint.ErrRequest) {
				t.Fatal(err)
			}
			return
		}
		for _, match := range m.Descriptors {
			if match.Rule == nil {
				continue
			}
			if _, err := s.AsCounted(match.Rule, rules.Key(match.Key)); err != nil {
				t.Errorf("key %q of %s: %v", match.Key, match.Rule.Name, err)
			}
		}
		if len(m.Asks) > 0 && cost < 1<<40 {
			if _, err := new(stint.Limiter).Take(t.Context(), &stint.Request{Asks: m.Asks}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Explain(t.Context(), &rules.Input{Descriptors: d}); err != nil {
			t.Errorf("Asks has no error, Explain has: %v", err)
		}
	})
}

// parsedAgain is data as read twice; nil: it is no file of descriptors.
func parsedAgain(t *testing.T, data []byte) *rules.Set {
	files := []rules.File{{Name: "f.yaml", Data: data, Envoy: true}}
	s, err := rules.ParseFiles(files)
	if err != nil {
		if !strings.Contains(err.Error(), "f.yaml:") {
			t.Errorf("an error without a place: %v", err)
		}
		return nil
	}
	again, err := rules.ParseFiles(files)
	if err != nil || again.Version != s.Version || len(again.Rules) != len(s.Rules) {
		t.Fatalf("read again: %v", err)
	}
	names := map[string]bool{}
	for i, r := range s.Rules {
		if !rules.IsName(r.Name) || names[r.Name] || r.Name != again.Rules[i].Name {
			t.Errorf("rule %q, read again %q", r.Name, again.Rules[i].Name)
		}
		names[r.Name] = true
	}
	return s
}
