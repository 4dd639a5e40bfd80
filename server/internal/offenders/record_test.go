package offenders_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/heavy"
	"github.com/stintdev/stint/server/internal/offenders"
	"github.com/stintdev/stint/server/internal/reports"
	"github.com/stintdev/stint/server/rules"
)

var parsed = sync.OnceValue(func() *rules.Set {
	set, err := rules.Parse("rules.yaml", []byte(`rules:
  - name: login
    key: client.ip
    limits: [5 per 1m, 100 per 1h]
    penalty: {ban_after: 5, ban_for: 30m}
  - name: api
    key: client.ip
    limits: [1000 per 1s]
`))
	if err != nil {
		panic(err)
	}
	return set
})

func newCounter(t testing.TB, most int) *offenders.Counter {
	s := offenders.New(offenders.Options{
		Most: most, Reports: new(reports.Memory), ID: "one", Now: time.Now,
		Failed: func(err error) { t.Errorf("failed: %v", err) },
	})
	t.Cleanup(s.Close)
	return s
}

// request is a request from a client under both rules. refused is the rule that refuses; nil:
// none.
func request(key, path string, cost int64, refused *rules.Rule) *offenders.Request {
	r := &offenders.Request{Client: netip.MustParseAddr("192.0.2.1"), IPv6Prefix: 64, Path: path, Decision: &stint.Decision{Allowed: refused == nil, Key: key}, Rule: refused}
	for _, rule := range parsed().Rules {
		for _, l := range rule.Limits {
			r.Asks = append(r.Asks, stint.Ask{Key: key, Limit: l, Cost: cost, Penalty: rule.Penalty})
			r.Rules = append(r.Rules, rule)
			r.Each = append(r.Each, stint.Decision{Key: key, Limit: l, Allowed: rule != refused})
		}
	}
	return r
}

func top(t testing.TB, s *offenders.Counter, of offenders.Dimension, by offenders.Weight) heavy.List {
	t.Helper()
	r, err := s.Top(t.Context(), offenders.Query{Of: of, By: by, Since: time.Now()})
	if err != nil {
		t.Error(err)
	}
	return r.List
}

// words are the counts of a list, with the names as they are shown.
func words(of offenders.Dimension, l heavy.List) string {
	var all []string
	for _, c := range l.Counts {
		name := c.Key
		switch of {
		case offenders.Keys:
			k, _ := offenders.KeyOf(name)
			name = k.Rule + "|" + k.Key
		case offenders.Clients:
			name, _ = offenders.ClientOf(name)
		}
		all = append(all, fmt.Sprintf("%s=%d", name, c.Count))
	}
	return strings.Join(all, " ")
}

func TestObserve(t *testing.T) {
	s := newCounter(t, 10)
	login := parsed().Rules[0]
	s.Observe(request("ann", "/login", 3, nil))
	s.Observe(request("bob", "/login", 0, nil)) // costs 1
	six := request("eve", "/login", 1, login)
	six.Client = netip.MustParseAddr("2001:db8:0:1::5%eth0")
	six.Decision.Penalty, six.Decision.Violations = login.Penalty, 1
	s.Observe(six)
	s.Observe(six)
	blocked := &offenders.Request{Client: netip.MustParseAddr("::ffff:192.0.2.9"), IPv6Prefix: 64, Path: "/", Decision: &stint.Decision{}}
	s.Observe(blocked)
	s.Violated(login, "joe", &offenders.Request{Path: strings.Repeat("/x", 200)})
	for _, tc := range []struct {
		of   offenders.Dimension
		by   offenders.Weight
		want string
	}{
		{offenders.Keys, offenders.Use, "api|ann=3 login|ann=3 api|bob=1 login|bob=1"},
		{offenders.Rules, offenders.Use, "api=4 login=4"},
		{offenders.Paths, offenders.Use, "/login=4"},
		{offenders.Clients, offenders.Use, "192.0.2.1=4"},
		{offenders.Keys, offenders.Refusals, "login|eve=2"},
		{offenders.Rules, offenders.Refusals, "login=2"},
		{offenders.Paths, offenders.Refusals, "/login=2 /=1"},
		{offenders.Clients, offenders.Refusals, "2001:db8:0:1::/64=2 192.0.2.9=1"},
		{offenders.Keys, offenders.Violations, "login|eve=2 login|joe=1"},
		{offenders.Rules, offenders.Violations, "login=3"},
		{offenders.Paths, offenders.Violations, "/login=2 " + strings.Repeat("/x", 128) + "=1"},
		{offenders.Clients, offenders.Violations, "2001:db8:0:1::/64=2"},
	} {
		if got := words(tc.of, top(t, s, tc.of, tc.by)); got != tc.want {
			t.Errorf("%s by %s: %s, want %s", offenders.Dimensions[tc.of], offenders.Weights[tc.by], got, tc.want)
		}
	}
}

// What is not charged is no use: peeks, rules in shadow mode, and what a policy lets pass.
func TestUseIsCharged(t *testing.T) {
	s := newCounter(t, 10)
	r := request("ann", "/", 1, nil)
	for i := range r.Asks {
		r.Asks[i].Peek, r.Asks[i].Cost = true, 0
	}
	s.Observe(r)
	r = request("ann", "/", 1, nil)
	for i := range r.Each {
		r.Each[i].By = stint.ByPolicy
	}
	s.Observe(r)
	r = request("ann", "/", 1, nil)
	shadow := *r.Rules[0]
	shadow.Mode = rules.Shadow
	r.Rules = []*rules.Rule{&shadow, &shadow, r.Rules[2]}
	s.Observe(r)
	if got := words(offenders.Keys, top(t, s, offenders.Keys, offenders.Use)); got != "api|ann=1" {
		t.Error(got)
	}
}

// A key that is too long to be kept is counted under a hash, which cannot be taken for a key.
func TestLongKeys(t *testing.T) {
	s := newCounter(t, 10)
	login := parsed().Rules[0]
	long := strings.Repeat("k", stint.MaxKey)
	s.Observe(request(long, "", 1, login))
	s.Observe(request(long, "", 1, login))
	s.Observe(request(long[1:]+"x", "", 1, login))
	l := top(t, s, offenders.Keys, offenders.Refusals)
	if len(l.Counts) != 2 || l.Counts[0].Count != 2 {
		t.Fatalf("%+v", l)
	}
	k, ok := offenders.KeyOf(l.Counts[0].Key)
	if !ok || k.Rule != "login" || !k.Hashed || len(k.Key) != 33 {
		t.Errorf("%+v", k)
	}
	s.Observe(request(k.Key, "", 1, login))
	if l := top(t, s, offenders.Keys, offenders.Refusals); len(l.Counts) != 3 {
		t.Errorf("a key is counted as another's hash: %+v", l)
	}
}

// Nothing that is counted is lost, however many goroutines there are, and while others read.
func TestNothingIsLost(t *testing.T) {
	s := newCounter(t, 100)
	const each = 20_000
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			r := request(fmt.Sprintf("key-%d", g), "/p", 1, parsed().Rules[1])
			for range each {
				s.Observe(r)
			}
		})
	}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		for range 50 {
			top(t, s, offenders.Keys, offenders.Refusals)
		}
	}()
	all.Wait()
	<-reading
	l := top(t, s, offenders.Keys, offenders.Refusals)
	if l.Total != 8*each || len(l.Counts) != 8 || l.Counts[7].Count != each {
		t.Errorf("%+v", l)
	}
}

// What is kept is a copy: it does not change with, and does not keep, what a request had.
func TestCopies(t *testing.T) {
	s := newCounter(t, 10)
	if n := testing.AllocsPerRun(1000, func() {
		s.Observe(request1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var request1 = request("192.0.2.1", "/login", 1, nil)

// The figure of docs/offenders.md: what a request pays, and what counting costs in all, where
// most happens in the background.
func BenchmarkObserve(b *testing.B) {
	simple := request("192.0.2.1", "/login", 1, nil)
	simple.Asks, simple.Rules, simple.Each = simple.Asks[2:], simple.Rules[2:], simple.Each[2:]
	refused := *simple
	refused.Decision, refused.Rule = &stint.Decision{Key: "192.0.2.1"}, simple.Rules[0]
	for _, bc := range []struct {
		name  string
		count bool
		r     *offenders.Request
	}{{"request", false, simple}, {"refused", false, &refused}, {"3limits", false, request1}, {"counted", true, simple}} {
		for _, mode := range []string{"alone", "parallel"} {
			b.Run(bc.name+"/"+mode, func(b *testing.B) {
				s := newCounter(b, 1000)
				if !bc.count {
					offenders.Discard(s)
				}
				b.ReportAllocs()
				if mode == "alone" {
					r := *bc.r
					for b.Loop() {
						r.Start++
						s.Observe(&r)
					}
					return
				}
				var from atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					r := *bc.r
					r.Start = time.Duration(from.Add(1e9))
					for pb.Next() {
						r.Start++
						s.Observe(&r)
					}
				})
			})
		}
	}
}
