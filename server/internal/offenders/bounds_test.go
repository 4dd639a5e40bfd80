package offenders_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/offenders"
)

// Full of the longest keys and paths, a Counter takes no more than docs/bounds.md says.
func TestBytesOfOffenders(t *testing.T) {
	settings := config.Default()
	bound := int64(0)
	for _, p := range settings.FitMemory().Parts {
		if strings.Contains(p.Name, "offenders") && !strings.Contains(p.Name, "history") {
			bound += p.Most * p.Each
		}
	}
	login := parsed().Rules[0]
	violated := request("", "", 1, login)
	violated.Decision.Penalty, violated.Decision.Violations = login.Penalty, 1
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := newCounter(t, int(settings.Offenders))
	for i := range 5000 {
		name := fmt.Sprintf("%s%06d", strings.Repeat("k", 249), i)
		for _, r := range []*offenders.Request{request(name, "/"+name, 1, nil), request(name, "/"+name, 1, login), violated} {
			rule := *login
			rule.Name = fmt.Sprintf("%s%06d", strings.Repeat("r", 58), i)
			for j := range r.Rules {
				r.Rules[j] = &rule
				r.Asks[j].Key = name
			}
			if r.Rule != nil {
				r.Rule, r.Decision.Key, r.Path = &rule, name, "/"+name
			}
			r.Client = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			s.Observe(r)
		}
	}
	for of := offenders.Keys; of <= offenders.Clients; of++ {
		for by := offenders.Refusals; by <= offenders.Violations; by++ {
			if l := top(t, s, of, by); len(l.Counts) != int(settings.Offenders) {
				t.Errorf("%s by %s: %d", offenders.Dimensions[of], offenders.Weights[by], len(l.Counts))
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	took := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if t.Logf("%d bytes of %d", took, bound); took > bound {
		t.Errorf("%d bytes, docs/bounds.md says %d", took, bound)
	}
	runtime.KeepAlive(s)
}

// A flood of keys that nobody else sends does not hide one that is heavier than the bound.
func TestFloodOfOffenders(t *testing.T) {
	s := newCounter(t, 100)
	login := parsed().Rules[0]
	eve := request("eve", "/login", 1, login)
	eve.Client = netip.MustParseAddr("192.0.2.66")
	const flood = 50_000
	for i := range flood {
		r := request(fmt.Sprint("made-up-", i), fmt.Sprint("/", i), 1, login)
		r.Client = netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		s.Observe(r)
		if i%40 == 0 {
			s.Observe(eve)
		}
	}
	for of, want := range map[offenders.Dimension]string{offenders.Keys: "login\x00eve", offenders.Paths: "/login"} {
		l := top(t, s, of, offenders.Refusals)
		c := l.Counts[0]
		if c.Key != want || c.Count < flood/40 || c.Count-c.Error > flood/40 || c.Error > l.Total/100 {
			t.Errorf("%s: %+v of %d", offenders.Dimensions[of], c, l.Total)
		}
	}
	if name, _ := offenders.ClientOf(top(t, s, offenders.Clients, offenders.Refusals).Counts[0].Key); name != "192.0.2.66" {
		t.Error(name)
	}
}

// Records of any sizes come out as they went in, also where one does not fit behind another.
func TestRecordsOfAnySize(t *testing.T) {
	s := newCounter(t, 1000)
	for i := range 2000 {
		key := strings.Repeat("k", 1+i*7919%stint.MaxKey)
		r := request(key, strings.Repeat("/", i%300), 1, nil)
		r.Asks, r.Rules, r.Each = r.Asks[2:], r.Rules[2:], r.Each[2:]
		s.Observe(r)
	}
	l := top(t, s, offenders.Keys, offenders.Use)
	if l.Total != 2000 {
		t.Errorf("%d of 2000", l.Total)
	}
	if p := top(t, s, offenders.Paths, offenders.Use); p.Total != 2000-7 { // those without a path
		t.Errorf("paths: %d", p.Total)
	}
}
