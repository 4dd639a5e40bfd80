package stats

import (
	"bufio"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint/server/config"
)

// receiver is a statsd over TCP that can be stopped and started.
type receiver struct {
	address string
	l       net.Listener

	mu    sync.Mutex
	lines []string
	conns []net.Conn
	wg    sync.WaitGroup
}

func receive(t testing.TB) *receiver {
	r := &receiver{address: "127.0.0.1:0"}
	r.start(t)
	t.Cleanup(r.stop)
	return r
}

func (r *receiver) start(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	r.l, r.address = l, l.Addr().String()
	r.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns = append(r.conns, c)
			r.mu.Unlock()
			r.wg.Go(func() {
				for in := bufio.NewScanner(c); in.Scan(); {
					r.mu.Lock()
					r.lines = append(r.lines, in.Text())
					r.mu.Unlock()
				}
			})
		}
	})
}

func (r *receiver) stop() {
	_ = r.l.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.wg.Wait()
}

// got returns what came so far, without Go's runtime, sorted, as soon as a line has the prefix.
func (r *receiver) got(t testing.TB, until string) []string {
	t.Helper()
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		var lines []string
		found := false
		for _, line := range r.lines {
			if found = found || strings.HasPrefix(line, until); !strings.HasPrefix(line, "ratelimit.go.") {
				lines = append(lines, line)
			}
		}
		r.mu.Unlock()
		if found {
			slices.Sort(lines)
			return lines
		}
	}
	t.Fatalf("no line %s", until)
	return nil
}

func (r *receiver) clear() {
	r.mu.Lock()
	r.lines = nil
	r.mu.Unlock()
}

func newStats(t testing.TB, c config.EnvoyStats) *Stats {
	t.Helper()
	c.NearLimitRatio = 0.8
	s, err := New(Config{Stats: c, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.statsd != nil {
			s.statsd.close()
		}
	})
	return s
}

// The lines are those of gostats, with its tags. What was sent is not sent again.
func TestStatsdLines(t *testing.T) {
	r := receive(t)
	s := newStats(t, config.EnvoyStats{Statsd: r.address, Tags: map[string]string{"version": "1.2", "az": "a", "": "x", "none": ""}})
	s.rules.add("shop.path", false, &hits{totalHits: 3, withinLimit: 2, overLimit: 1})
	s.rules.add("shop.evil_\n:1|c\x00", true, &hits{totalHits: 1})
	s.Called("Check", 1500*time.Microsecond)
	s.Called("Check", 0)
	s.flush()
	want := []string{
		"ratelimit.service.rate_limit.shop.evil___1_c_.total_hits.__az=a.__version=1_2:1|c",
		"ratelimit.service.rate_limit.shop.path.over_limit.__az=a.__version=1_2:1|c",
		"ratelimit.service.rate_limit.shop.path.total_hits.__az=a.__version=1_2:3|c",
		"ratelimit.service.rate_limit.shop.path.within_limit.__az=a.__version=1_2:2|c",
		"ratelimit_server.Check.response_time.__az=a.__version=1_2:0|ms",
		"ratelimit_server.Check.response_time.__az=a.__version=1_2:1.5|ms",
		"ratelimit_server.Check.total_requests.__az=a.__version=1_2:2|c",
	}
	if got := r.got(t, want[5]); !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	r.clear()
	s.Loaded(nil)
	s.rules.add("shop.path", false, &hits{totalHits: 4})
	s.flush()
	want = []string{
		"ratelimit.service.config_load_success.__az=a.__version=1_2:1|c",
		"ratelimit.service.rate_limit.shop.path.total_hits.__az=a.__version=1_2:4|c",
	}
	if got := r.got(t, "ratelimit.go.numGoroutine"); !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The example of envoyproxy/ratelimit's documentation, and names that no mogrifier knows.
func TestDogstatsdLines(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newStats(t, config.EnvoyStats{
		DogStatsd: l.LocalAddr().String(), Tags: map[string]string{"tag": "1.2,3"}, DogStatsdTags: map[string]string{"version": "1.2", "env": "prod"},
		Mogrifiers: []config.Mogrifier{
			{Pattern: `^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.(.*)$`, Name: "ratelimit.service.rate_limit.$3", Tags: map[string]string{"domain": "$1", "descriptor": "$2", "other": "$4"}},
			{Pattern: `.*`, Name: "never.for.the.above"},
		},
	})
	s.rules.add("shop.path_a,b", false, &hits{totalHits: 3})
	s.Called("Check", 2*time.Millisecond)
	for i := range 200 {
		s.rules.add(fmt.Sprintf("shop.path_%d", i), true, &hits{withinLimit: 1})
	}
	s.flush()
	var lines []string
	packet := make([]byte, 64<<10)
	for !slices.Contains(lines, "never.for.the.above:2.004|ms|#tag:1_2_3,env:prod,version:1.2") {
		_ = l.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, _, err := l.ReadFrom(packet)
		if err != nil {
			t.Fatalf("%v after %q", err, lines)
		}
		if n > datagram || packet[n-1] != '\n' {
			t.Errorf("a datagram of %d bytes", n)
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(string(packet[:n]), "\n"), "\n")...)
	}
	for _, want := range []string{
		"ratelimit.service.rate_limit.total_hits:3|c|#tag:1_2_3,env:prod,version:1.2,descriptor:path_a_b,domain:shop,other:$4",
		"ratelimit.service.rate_limit.within_limit:1|c|#tag:1_2_3,env:prod,version:1.2,descriptor:path_199,domain:shop,other:$4",
		"never.for.the.above:1|c|#tag:1_2_3,env:prod,version:1.2",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("%s is missing in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

// sums are the values of the counters in lines, and the number of times.
func sums(t testing.TB, lines []string) map[string]float64 {
	all := map[string]float64{}
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, ":")
		parts := strings.Split(rest, "|")
		n, err := strconv.ParseFloat(parts[0], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if parts[1] == "ms" {
			if n = 1; len(parts) == 3 {
				rate, _ := strconv.ParseFloat(parts[2][1:], 64)
				n = 1 / rate
			}
		}
		all[name] += n
	}
	return all
}

// Nothing is lost and nothing comes twice while statsd is away.
func TestStatsdComesBack(t *testing.T) {
	r := receive(t)
	s := newStats(t, config.EnvoyStats{Statsd: r.address})
	hit := func() { s.rules.add("shop.path", false, &hits{totalHits: 1}); s.Called("M", 0) }
	hit()
	s.flush()
	r.got(t, "ratelimit_server.M.response_time")
	closed := s.statsd.closed
	r.stop()
	<-closed
	for range 3 {
		hit()
		s.flush()
	}
	if !s.statsd.failing {
		t.Error("statsd is away, and nobody says so")
	}
	r.start(t)
	hit()
	s.Failed(true)
	s.flush()
	got := sums(t, r.got(t, "ratelimit_server.M.response_time"))
	for began := time.Now(); got["ratelimit_server.M.response_time"] < 5 && time.Since(began) < 20*time.Second; {
		got = sums(t, r.got(t, "ratelimit_server.M.response_time"))
	}
	want := map[string]float64{
		"ratelimit.service.rate_limit.shop.path.total_hits":    5,
		"ratelimit.service.call.should_rate_limit.redis_error": 1,
		"ratelimit_server.M.total_requests":                    5,
		"ratelimit_server.M.response_time":                     5,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || s.statsd.failing {
		t.Errorf("%v\nwant %v", got, want)
	}
}

// Of many times, a part is sent, which stands for all.
func TestStatsdSamplesTimes(t *testing.T) {
	r := receive(t)
	s := newStats(t, config.EnvoyStats{Statsd: r.address})
	const calls = 50_000
	for i := range calls {
		s.Called("M", time.Duration(i)*time.Microsecond)
	}
	s.flush()
	s.Loaded(nil)
	s.flush()
	var values []float64
	lines := r.got(t, "ratelimit.service.config_load_success")
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, "ratelimit_server.M.response_time:"); ok {
			v, err := strconv.ParseFloat(rest[:strings.Index(rest, "|")], 64)
			if err != nil || !strings.HasSuffix(rest, "|ms|@0.02") {
				t.Fatal(line)
			}
			values = append(values, v)
		}
	}
	slices.Sort(values)
	if len(values) != mostTimes {
		t.Fatalf("%d lines", len(values))
	}
	for _, part := range []float64{0.1, 0.5, 0.9, 0.999} {
		if got, want := values[int(part*mostTimes)], part*calls/1000; got < want*0.98 || got > want*1.02 {
			t.Errorf("quantile %g: %g ms, want %g", part, got, want)
		}
	}
	if n := sums(t, lines)["ratelimit_server.M.response_time"]; n < calls-1 || n > calls+1 {
		t.Errorf("the lines stand for %g calls", n)
	}
}

// Names that are not used go, from Prometheus, too, while hits go on; none of these is lost.
func TestSweepLosesNothing(t *testing.T) {
	r := receive(t)
	s := newStats(t, config.EnvoyStats{Statsd: r.address, PrometheusListen: ":9090"})
	const workers, rounds = 4, 3000
	const runtimeSeries = 5 // counters of Go's runtime stay
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				if !s.rules.add(fmt.Sprintf("shop.k.path_%d", (i*7+w)%50), true, &hits{totalHits: 1}) {
					t.Error("no room")
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	now := time.Now()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		s.flush()
		s.prometheus.update(s.groups(), nil, now)
		now = now.Add(keepRequests)
		s.sweep(now)
	}
	if n := len(s.rules.appendAll(nil)); n > 50 {
		t.Errorf("%d names", n)
	}
	s.flush()
	for range 2 {
		now = now.Add(2 * keepRequests)
		s.sweep(now)
	}
	if n := len(s.rules.appendAll(nil)); n != 0 || s.rules.ofRequests.Load() != 0 || len(s.prometheus.series) != runtimeSeries || len(s.prometheus.families) != runtimeSeries {
		t.Errorf("%d names are left, %d counted, %d series, %d families", n, s.rules.ofRequests.Load(), len(s.prometheus.series), len(s.prometheus.families))
	}
	s.Loaded(nil)
	s.flush()
	total := 0.0
	for name, n := range sums(t, r.got(t, "ratelimit.service.config_load_success")) {
		if strings.HasSuffix(name, ".total_hits") {
			total += n
		}
	}
	if total != workers*rounds {
		t.Errorf("statsd got %g of %d hits", total, workers*rounds)
	}
}

// shortConn takes some bytes and then fails.
type shortConn struct {
	net.Conn
	takes int
	got   []byte
}

func (c *shortConn) SetWriteDeadline(time.Time) error { return nil }
func (c *shortConn) Close() error                     { return nil }

func (c *shortConn) Write(p []byte) (int, error) {
	n := min(c.takes, len(p))
	c.got, c.takes = append(c.got, p[:n]...), c.takes-n
	if n < len(p) {
		return n, net.ErrClosed
	}
	return n, nil
}

// Of a write that fails in the middle, the lines that were written whole are not sent again, and
// the others are.
func TestStatsdWritesInPart(t *testing.T) {
	for cut := 0; cut < 1500; cut += 7 {
		s := newStats(t, config.EnvoyStats{Statsd: "127.0.0.1:1"})
		for i := range 20 {
			s.rules.add(fmt.Sprintf("shop.path_%d", i), false, &hits{totalHits: uint64(1 + i)})
		}
		var lines []string
		for _, takes := range []int{cut, 1 << 20} {
			c := &shortConn{takes: takes}
			s.statsd.conn, s.statsd.closed = c, make(chan struct{})
			s.flush()
			got := string(c.got)
			got = got[:strings.LastIndex(got, "\n")+1]
			lines = append(lines, strings.Split(strings.TrimSuffix(got, "\n"), "\n")...)
		}
		total := 0.0
		for name, n := range sums(t, slices.DeleteFunc(lines, func(line string) bool { return line == "" })) {
			if strings.HasPrefix(name, "ratelimit.service.rate_limit.") {
				total += n
			}
		}
		if total != 20*21/2 {
			t.Fatalf("after %d bytes: %g", cut, total)
		}
	}
}

// A series of several statistics, some of which go, keeps what they had: a counter never falls.
func TestFoldedSeriesOnlyGrow(t *testing.T) {
	s := newStats(t, config.EnvoyStats{PrometheusListen: ":9090"})
	hit := func(name string, n uint64) { s.rules.add(name, true, &hits{totalHits: n}) }
	look := func() float64 {
		for _, f := range s.prometheus.update(s.groups(), nil, time.Now()) {
			if f.name == "ratelimit_service_rate_limit_total_hits" {
				return math.Float64frombits(f.value.Load())
			}
		}
		return 0
	}
	now := time.Now()
	hit("shop.a.b.c1", 5)
	hit("shop.a.b.c2", 1)
	if n := look(); n != 6 {
		t.Fatalf("%g hits", n)
	}
	hit("shop.a.b.c1", 4)
	s.sweep(now)
	hit("shop.a.b.c2", 1)
	s.sweep(now.Add(keepRequests))
	if n := look(); n != 11 || len(s.rules.appendAll(nil)) != 1 {
		t.Errorf("%g hits of %d names", n, len(s.rules.appendAll(nil)))
	}
	hit("shop.a.b.c1", 1)
	if n := look(); n != 12 {
		t.Errorf("%g hits", n)
	}
}

// A scrape that began before a sweep does not bring back what the sweep dropped.
func TestSweepDuringScrape(t *testing.T) {
	s := newStats(t, config.EnvoyStats{PrometheusListen: ":9090"})
	s.rules.add("shop.a", true, &hits{totalHits: 1})
	now := time.Now()
	s.prometheus.update(s.groups(), nil, now)
	listed := s.groups()
	s.sweep(now)
	s.sweep(now.Add(keepRequests))
	if all := s.prometheus.update(listed, nil, now); len(all) != 0 {
		t.Errorf("%d series", len(all))
	}
}

// ttl of a mapping drops a series that has not changed for so long. It begins again at 0.
func TestTTL(t *testing.T) {
	s := newStats(t, config.EnvoyStats{PrometheusListen: ":9090"})
	if err := s.prometheus.mapper.InitFromYAMLString("defaults: {ttl: 1m}\nmappings: [{match: a.*, name: a}]"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, step := range []struct {
		hits  uint64
		after time.Duration
		want  string
	}{{5, 0, "5"}, {0, time.Minute, "5"}, {0, time.Second, "none"}, {2, 0, "2"}, {1, time.Minute, "3"}, {0, time.Minute + 1, "none"}} {
		now = now.Add(step.after)
		s.rules.add("shop.a", false, &hits{totalHits: step.hits})
		got := "none"
		for _, f := range s.prometheus.update(s.groups(), nil, now) {
			if f.name == "ratelimit_service_rate_limit_shop_a_total_hits" {
				got = fmt.Sprint(math.Float64frombits(f.value.Load()))
			}
		}
		if got != step.want {
			t.Errorf("%+v: %s", step, got)
		}
	}
}
