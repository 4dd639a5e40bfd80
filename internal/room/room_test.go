package room_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"github.com/stintdev/stint/internal/room"
)

// from finds the client in a request of the tests, which is the address alone.
func from(r *http.Request) netip.Addr { return netip.MustParseAddr(r.RemoteAddr) }

func request(client int) *http.Request {
	return &http.Request{RemoteAddr: fmt.Sprintf("192.0.2.%d", client)}
}

// taken fills a room with what each of so many greedy clients can take, in turn.
func taken(places int64, clients int) (each []int, free int64) {
	m := room.Of(places)
	each = make([]int, clients)
	for again := true; again; {
		again = false
		for c := range each {
			if _, no := m.Enter(request(c), from); no == room.None {
				each[c]++
				again = true
			}
		}
	}
	return each, places - m.Taken()
}

// What greedy clients can take, and what they leave.
func TestGreedyClients(t *testing.T) {
	for _, c := range []struct {
		places  int64
		clients int
		want    string
	}{
		{1, 1, "[1], 0 free"},
		{2, 1, "[2], 0 free"},
		{4, 1, "[3], 1 free"},
		{500, 1, "[375], 125 free"},
		{500, 2, "[209 208], 83 free"},
		{500, 4, "[113 113 112 112], 50 free"},
	} {
		each, free := taken(c.places, c.clients)
		if got := fmt.Sprintf("%d, %d free", each, free); got != c.want {
			t.Errorf("%d places, %d clients: %s, want %s", c.places, c.clients, got, c.want)
		}
	}
}

// Random comings and goings agree with a model that keeps a list of all who are in.
func TestRoomIsTheModel(t *testing.T) {
	type one struct {
		client int
		noted  bool
		place  room.Place
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		places, clients := 1+random.IntN(40), 1+random.IntN(6)
		m := room.Of(int64(places))
		var in []one
		for step := range 2000 {
			if len(in) > 0 && random.IntN(5) < 2 {
				i := random.IntN(len(in))
				m.Leave(in[i].place)
				in = append(in[:i], in[i+1:]...)
				continue
			}
			c := min(random.IntN(clients), random.IntN(clients)) // some come more often
			mine, noted := 0, 0
			for _, other := range in {
				if other.noted {
					noted++
					if other.client == c {
						mine++
					}
				}
			}
			free, beyond := places-len(in), len(in)-places/2
			part := 0.0 // of what is taken beyond half
			if beyond > 0 {
				part = float64(beyond) * float64(mine) / float64(noted)
			}
			want := room.None
			switch {
			case free == 0:
				want = room.Full
			case part >= float64(free):
				want = room.Share
			}
			p, got := m.Enter(request(c), from)
			if got != want {
				t.Fatalf("seed %d, step %d: client %d with %d of %d noted, %d beyond half, %d free: %d, want %d", seed, step, c, mine, noted, beyond, free, got, want)
			}
			if got == room.None {
				in = append(in, one{c, beyond >= 0, p})
			}
			if m.Taken() != int64(len(in)) {
				t.Fatalf("seed %d, step %d: %d taken, want %d", seed, step, m.Taken(), len(in))
			}
		}
	}
}

// Requests that take many places, again and again, leave something to one who has taken
// little, never take more than there is, and leave nothing behind.
func TestManyPlaces(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		places := int64(1) << (6 + random.IntN(34)) // up to more than whose product fits into 64 bits
		m := room.Of(places)
		in := make([]room.Place, 20)
		for range 2000 {
			i := random.IntN(len(in))
			if random.IntN(20) == 0 {
				m.Leave(in[i])
				in[i] = room.Place{}
				continue
			}
			_ = m.Add(&in[i], 1+random.Int64N(max(1, places/16)), request(0), from)
			if m.Taken() > places {
				t.Fatalf("seed %d: %d of %d taken", seed, m.Taken(), places)
			}
		}
		if most := places*3/4 + 1; m.Taken() > most {
			t.Errorf("seed %d: one client has %d of %d, want at most %d", seed, m.Taken(), places, most)
		}
		var other room.Place
		if no := m.Add(&other, places-m.Taken(), request(1), from); no != room.None {
			t.Errorf("seed %d: another with %d of %d taken: %d", seed, m.Taken(), places, no)
		}
		m.Leave(other)
		for _, p := range in {
			m.Leave(p)
		}
		if m.Taken() != 0 || m.Noted() != 0 {
			t.Errorf("seed %d: %d left behind, and %d clients", seed, m.Taken(), m.Noted())
		}
	}
}

// One client may take all of what is undivided; and who has all that is taken, more than
// there is.
func TestUndivided(t *testing.T) {
	m := room.Undivided(10)
	var one, other room.Place
	if no := m.Add(&one, 10, request(0), from); no != room.None {
		t.Error(no)
	}
	if no := m.Add(&other, 1, request(0), from); no != room.Full {
		t.Error(no)
	}
	if m.AddAlone(&other, 1) || !m.AddAlone(&one, 5) || m.Taken() != 15 {
		t.Errorf("%d taken", m.Taken())
	}
	if m.Leave(one); m.Taken() != 0 {
		t.Errorf("%d left behind", m.Taken())
	}
}

// A client alone has three quarters, however its requests come and go, and whatever it
// does another finds room.
func TestAClientAlone(t *testing.T) {
	m := room.Of(100)
	random := rand.New(rand.NewPCG(1, 0))
	var in []room.Place
	for range 10_000 {
		for {
			p, no := m.Enter(request(1), from)
			if no != room.None {
				break
			}
			in = append(in, p)
		}
		if len(in) != 75 {
			t.Fatalf("%d places", len(in))
		}
		other, no := m.Enter(request(2), from)
		if no != room.None {
			t.Fatalf("another: %d", no)
		}
		m.Leave(other)
		for range 1 + random.IntN(75) {
			i := random.IntN(len(in))
			m.Leave(in[i])
			in[i] = in[len(in)-1]
			in = in[:len(in)-1]
		}
	}
}

// Addresses of one subscriber are one client, and unknown ones are one as well.
func TestClientOfAddress(t *testing.T) {
	for _, c := range []struct {
		one, other string
		same       bool
	}{
		{"2001:db8::1", "2001:db8::2", true},
		{"2001:db8::1%eth0", "2001:db8::1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"::ffff:192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
	} {
		m := room.Of(4)
		for range 3 {
			if _, no := m.Enter(&http.Request{RemoteAddr: c.one}, from); no != room.None {
				t.Fatal(no)
			}
		}
		if _, no := m.Enter(&http.Request{RemoteAddr: c.other}, from); (no == room.Share) != c.same {
			t.Errorf("%s and %s: %d", c.one, c.other, no)
		}
	}
	nobody := room.Of(4)
	for range 3 {
		_, _ = nobody.Enter(nil, nil)
	}
	if _, no := nobody.Enter(nil, func(*http.Request) netip.Addr { return netip.Addr{} }); no != room.Share {
		t.Errorf("no address: %d", no)
	}
}

// However many come and go at once, there are never more than places in, and nothing is
// left when all have gone.
func TestRoomUnderRaces(t *testing.T) {
	m := room.Of(8)
	var in sync.Map
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for range 5000 {
				p, no := m.Enter(request(g%4), from)
				if no != room.None {
					continue
				}
				in.Store(g, true)
				n := 0
				in.Range(func(any, any) bool { n++; return true })
				if n > 8 {
					t.Errorf("%d are in", n)
				}
				in.Delete(g)
				m.Leave(p)
			}
		})
	}
	all.Wait()
	if m.Taken() != 0 {
		t.Errorf("%d left behind", m.Taken())
	}
	if each := m.Noted(); each != 0 {
		t.Errorf("%d clients left behind", each)
	}
}

// Neither half makes garbage.
func TestRoomAllocates(t *testing.T) {
	m, r := room.Of(100), request(1)
	for range 2 { // empty, then with the first half taken
		if n := testing.AllocsPerRun(1000, func() {
			p, _ := m.Enter(r, func(*http.Request) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 1}) })
			m.Leave(p)
		}); n != 0 {
			t.Errorf("%.1f allocations with %d taken", n, m.Taken())
		}
		for range 60 {
			_, _ = m.Enter(r, from)
		}
	}
}

func BenchmarkRoom(b *testing.B) {
	for name, before := range map[string]int{"first half": 0, "second half": 600} {
		b.Run(name, func(b *testing.B) {
			m, r := room.Of(1000), request(1)
			for range before {
				_, _ = m.Enter(r, nil)
			}
			client := netip.MustParseAddr("192.0.2.7")
			b.ReportAllocs()
			for b.Loop() {
				p, _ := m.Enter(r, func(*http.Request) netip.Addr { return client })
				m.Leave(p)
			}
		})
	}
}

// Two requests of a client that come at once do not each get what is left for one: while the client of
// the first is looked up, the second takes its places.
func TestRoomAtOnce(t *testing.T) {
	m := room.Of(4000)
	var unnoted, first, second, other room.Place
	if no := m.Add(&unnoted, 2000, request(1), from); no != room.None {
		t.Fatal(no)
	}
	slowly := func(r *http.Request) netip.Addr {
		if no := m.Add(&second, 1000, request(1), from); no != room.None {
			t.Errorf("the second: %d", no)
		}
		return from(r)
	}
	if no := m.Add(&first, 1000, request(1), slowly); no != room.Share {
		t.Errorf("the first: %d", no)
	}
	if no := m.Add(&other, 900, request(2), from); no != room.None {
		t.Errorf("another client: %d; %d of 4000 taken", no, m.Taken())
	}
}

// A client that is refused takes no place from others meanwhile.
func TestRoomBesideRefusals(t *testing.T) {
	m := room.Of(100)
	for {
		if _, no := m.Enter(request(1), from); no != room.None {
			break
		}
	}
	beside := func(r *http.Request) netip.Addr {
		var other room.Place
		if no := m.Add(&other, 20, request(2), from); no != room.None {
			t.Errorf("another client: %d; %d of 100 taken", no, m.Taken())
		}
		m.Leave(other)
		return from(r)
	}
	var p room.Place
	if no := m.Add(&p, 20, request(1), beside); no != room.Share {
		t.Errorf("a client with its share: %d", no)
	}
}
