package recent

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint/server/rules"
)

const window = 5 * time.Minute

func read(r *Recorder, now time.Duration) (all []Request, share int64) {
	p := r.Sample(now)
	for q := range p.All() {
		all = append(all, *q)
	}
	return all, p.Share
}

// What was recorded is read back, whatever it was.
func TestRoundTrip(t *testing.T) {
	r := New(1<<20, window)
	reads := &Reads{Headers: []string{"User-Agent", "X-Many"}, Claims: true}
	requests := []Request{
		{Input: &rules.Input{Cost: 1, Claims: map[string]any{}}, Subject: "x"},
		{At: time.Second, Input: &rules.Input{
			Client: netip.MustParseAddr("192.0.2.1"), Operation: "login", Cost: 7,
			Attrs:  map[string]any{"a": "text", "b": int64(-3), "c": 2.5, "d": nil, "e": []any{true, false, "x"}, "f": map[string]any{"g": []any{}}},
			Claims: map[string]any{"sub": "ann"},
			Request: &rules.Request{Method: "POST", Path: "/login", Host: "shop.example", Route: "api", RawQuery: "a=1&b=2", Preflight: true, Ambiguous: rules.NotUTF8,
				Header: http.Header{"User-Agent": {"curl"}, "X-Many": {"a", "b"}, "Authorization": {"Bearer secret"}}},
		}, MaxDelay: time.Minute},
		{At: time.Second / 2, Input: &rules.Input{Client: netip.MustParseAddr("2001:db8::1"), Request: &rules.Request{}}, Claims: map[string]any{"iss": "x"}},
		{At: time.Second / 4, Input: &rules.Input{Cost: 1, Claims: map[string]any{}, Descriptors: &rules.Descriptors{Domain: "d", Each: true, List: []rules.Descriptor{
			{Entries: []rules.Entry{{Key: "a", Value: "b"}, {Key: "c"}}, Cost: 7},
			{Entries: []rules.Entry{{Key: "a"}}, GiveBack: true, Cost: 1 << 60, Override: &rules.DescriptorLimit{Name: "n", Amount: 1 << 32, Unit: rules.Year, Times: 3}},
		}}}},
		{At: time.Second / 4, Input: &rules.Input{Claims: map[string]any{}, Descriptors: &rules.Descriptors{Domain: "d", Quota: true, Ahead: true, List: []rules.Descriptor{{Entries: []rules.Entry{}}}}}},
	}
	for i := range requests {
		r.Add(&requests[i], 64, reads)
	}
	delete(requests[1].Request.Header, "Authorization") // which no rule reads
	requests[0].Subject = ""                            // which is for the hash alone
	requests[2].Input.Claims, requests[2].Claims = requests[2].Claims, nil
	requests[2].Request.Header = http.Header{}
	got, share := read(r, time.Minute)
	if len(got) != len(requests) || share != 1 {
		t.Fatalf("%d requests, share %d", len(got), share)
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], requests[i]) {
			t.Errorf("%d: %+v %+v\nwant %+v %+v", i, got[i], got[i].Input, requests[i], requests[i].Input)
		}
	}
	if got, _ := read(r, window+time.Second/2); len(got) != 2 {
		t.Errorf("%d of 2 are in the window", len(got))
	}
}

func TestLacks(t *testing.T) {
	r := New(1<<20, window)
	q := &Request{Input: &rules.Input{Client: netip.MustParseAddr("192.0.2.1")}}
	few, all := &Reads{Headers: []string{"A", "C"}}, &Reads{AnyHeader: true, Claims: true}
	r.Add(q, 64, all)
	p := r.Sample(0)
	if got := p.Lacks(&Reads{Headers: []string{"A", "B"}, Claims: true}); got != nil {
		t.Error(got)
	}
	r.Add(q, 64, few)
	p = r.Sample(0)
	if got := fmt.Sprint(p.Lacks(&Reads{Headers: []string{"A", "B-X"}, Claims: true})); got != `[claims request.headers["b-x"]]` {
		t.Error(got)
	}
	if got := fmt.Sprint(p.Lacks(&Reads{AnyHeader: true})); got != `[request.headers]` {
		t.Error(got)
	}
}

// flood adds requests of clients at a rate, until a time. It returns how many each client sent,
// and when.
type sent struct {
	client int
	at     time.Duration
}

func flood(r *Recorder, from, to time.Duration, perSecond, clients int, reads *Reads) (all []sent) {
	step := time.Second / time.Duration(perSecond)
	random := rand.New(rand.NewPCG(1, uint64(perSecond)))
	q := &Request{Input: &rules.Input{Request: &rules.Request{Method: "GET", Path: "/v1/users/search", Host: "shop.example"}}}
	for at := from; at < to; at += step {
		n := random.IntN(clients)
		q.At, q.Client = at, netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
		r.Add(q, 64, reads)
		all = append(all, sent{n, at})
	}
	return all
}

// However many requests there are, memory is bounded; those of one in Share clients are there,
// and of these clients all that were sent since the first of them.
func TestSampleIsConsistent(t *testing.T) {
	for _, perSecond := range []int{1, 100, 2_000, 20_000} {
		r := New(4<<20, window)
		if testing.Short() && perSecond > 2_000 {
			continue
		}
		const end = 10 * time.Minute
		all := flood(r, 0, end, perSecond, 5_000, new(Reads))
		got, share := read(r, end)
		if len(got) == 0 {
			t.Fatalf("%d a second: nothing", perSecond)
		}
		type one struct {
			client netip.Addr
			at     time.Duration
		}
		is, chosen := map[one]bool{}, map[netip.Addr]bool{}
		for _, q := range got {
			is[one{q.Client, q.At}], chosen[q.Client] = true, true
		}
		from := got[0].At
		for _, s := range all {
			client := netip.AddrFrom4([4]byte{10, byte(s.client >> 16), byte(s.client >> 8), byte(s.client)})
			if s.at >= from && chosen[client] && !is[one{client, s.at}] {
				t.Fatalf("%d a second: a request of %v at %v is missing", perSecond, client, s.at)
			}
		}
		bytes := 0
		for _, s := range r.segments {
			bytes += cap(s.text)
		}
		lasted := end - from
		t.Logf("%d a second: %d requests of %v, of %d clients, 1 in %d, %d bytes", perSecond, len(got), lasted, len(chosen), share, bytes)
		if bytes > 4<<20 || lasted < window*9/10 || lasted > window {
			t.Errorf("%d a second: %d bytes, %v", perSecond, bytes, lasted)
		}
		if clients := min(5_000, len(all)); share > 1 && (len(chosen) < clients/int(share)/2 || len(chosen) > clients/int(share)*2) {
			t.Errorf("%d a second: %d clients of %d, 1 in %d", perSecond, len(chosen), clients, share)
		}
		if perSecond <= 100 && share != 1 {
			t.Errorf("%d a second: 1 in %d", perSecond, share)
		}
	}
}

// After a flood, all clients are recorded again.
func TestAfterAFlood(t *testing.T) {
	r, reads := New(1<<20, window), new(Reads)
	flood(r, 0, 20*time.Second, 20_000, 100_000, reads)
	if r.k < 4 {
		t.Fatalf("k is %d", r.k)
	}
	flood(r, 20*time.Second, 10*time.Minute, 10, 100, reads)
	if _, share := read(r, 10*time.Minute); share != 1 {
		t.Errorf("1 in %d", share)
	}
}

// What does not fit into a segment is left out, and harms nothing else.
func TestTooLarge(t *testing.T) {
	r, reads := New(1<<20, window), new(Reads)
	small := &Request{Input: &rules.Input{Client: netip.MustParseAddr("192.0.2.1")}}
	large := &Request{Input: &rules.Input{Client: netip.MustParseAddr("192.0.2.1"), Attrs: map[string]any{"x": string(make([]byte, 1<<20))}}}
	deep := any("x")
	for range 100 {
		deep = []any{deep}
	}
	for _, q := range []*Request{small, large, small, {Input: &rules.Input{Client: small.Client, Attrs: map[string]any{"deep": deep}}}, small} {
		r.Add(q, 64, reads)
	}
	if got, _ := read(r, 0); len(got) != 4 {
		t.Errorf("%d", len(got))
	}
}

// A sample can be read while requests go on, and only shrinks.
func TestReadWhileRecording(t *testing.T) {
	r, reads := New(1<<20, window), new(Reads)
	flood(r, 0, time.Minute, 500, 100, reads)
	var writing sync.WaitGroup
	for i := range 4 {
		writing.Go(func() { flood(r, time.Minute, 2*time.Minute, 5_000+i, 100, reads) })
	}
	for range 10 {
		p := r.Sample(2 * time.Minute)
		count := func() (n int) {
			for q := range p.All() {
				if q.Request.Path != "/v1/users/search" {
					t.Fatal(q.Request.Path)
				}
				n++
			}
			return n
		}
		if a, b := count(), count(); a < b || a == 0 {
			t.Errorf("%d, then %d", a, b)
		}
	}
	writing.Wait()
}

// Clients of one IPv6 network that is counted as one are one client, and IPv4 has two forms.
func TestClientsAsCounted(t *testing.T) {
	r := New(1<<20, window)
	hash := func(client string, prefix int) uint64 {
		return r.hash(&Request{Input: &rules.Input{Client: netip.MustParseAddr(client)}}, prefix)
	}
	for _, c := range []struct {
		a, b   string
		prefix int
		same   bool
	}{
		{"2001:db8::1", "2001:db8::2", 64, true},
		{"2001:db8::1", "2001:db8::2", 128, true}, // only in so far as a sample has both
		{"2001:db8::1", "2001:db8:0:1::1", 64, false},
		{"2001:db8::1", "2001:db8:0:1::1", 48, true},
		{"192.0.2.1", "::ffff:192.0.2.1", 64, true},
		{"192.0.2.1", "192.0.2.2", 64, false},
	} {
		if same := hash(c.a, c.prefix) == hash(c.b, c.prefix); same != c.same {
			t.Errorf("%+v: %v", c, same)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	reads := &Reads{Headers: []string{"User-Agent"}}
	header := http.Header{"User-Agent": {"curl/8.5.0"}, "Accept": {"*/*"}}
	requests := make([]Request, 1<<12)
	for i := range requests {
		requests[i].Input = &rules.Input{Client: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Cost: 1,
			Request: &rules.Request{Method: "GET", Path: "/v1/users/search", Host: "shop.example", RawQuery: "q=shoes", Header: header}}
	}
	for name, perSecond := range map[string]int{"each request": 200, "sampled, 20 k a second": 20_000} {
		b.Run(name, func(b *testing.B) {
			r := New(4<<20, window)
			b.ReportAllocs()
			i, at := 0, time.Duration(0)
			for b.Loop() {
				q := &requests[i%len(requests)]
				i++
				at += time.Second / time.Duration(perSecond)
				q.At = at
				r.Add(q, 64, reads)
			}
		})
	}
	b.Run("parallel, as fast as it can", func(b *testing.B) {
		r, start := New(4<<20, window), time.Now()
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			i, at := rand.Int(), time.Duration(0)
			for p.Next() {
				q := requests[i%len(requests)]
				if i++; i%64 == 0 {
					at = time.Since(start)
				}
				q.At = at
				r.Add(&q, 64, reads)
			}
		})
	})
}
