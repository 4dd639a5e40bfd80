package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

func open(t testing.TB, address string) *redislimit.Store {
	t.Helper()
	s, err := redislimit.Connect(context.Background(), address, redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestOpen(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "secret")
	unix := "unix://:secret@" + server.Socket + "?db=3"
	for _, address := range []string{"redis://:secret@" + server.Addr, "redis://default:secret@" + server.Addr + "/2", unix} {
		s := open(t, address)
		if d, err := stint.NewLimiter(s).Allow(t.Context(), "a", stint.MustLimit("1 per 1m")); err != nil || !d.Allowed {
			t.Errorf("%s: %+v, %v", address, d, err)
		}
		if v := s.Server(); v.Version == "" || v.Cluster || v.Eviction != "noeviction" {
			t.Errorf("%s: server %+v", address, v)
		}
	}
	for address, want := range map[string]string{
		"redis://" + server.Addr:                 "the server requires a password",
		"redis://:wrong@" + server.Addr:          "does not accept this user and password",
		"redis://nobody:wrong@" + server.Addr:    "does not accept this user and password",
		"redis://:secret@127.0.0.1:1":            "connect to 127.0.0.1:1",
		"unix://" + server.Dir + "/nothing.sock": "nothing.sock",
	} {
		_, err := redislimit.Connect(t.Context(), address, redislimit.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", address, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "wrong@")) {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

func TestTLS(t *testing.T) {
	ca, cert, key := redistest.Certificate(t)
	server := redistest.Start(t, "--tls-port", "0", "--port", "0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
	address := server.ListenTLS(t)
	params := "?server_name=localhost&ca=" + ca
	if _, err := redislimit.Connect(t.Context(), "rediss://"+address+params, redislimit.Options{}); err == nil {
		t.Error("the server asks for a certificate, and took none")
	}
	s := open(t, "rediss://"+address+params+"&cert="+cert+"&key="+key)
	if d, err := stint.NewLimiter(s).Allow(t.Context(), "a", stint.MustLimit("1 per 1m")); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	mine := "&cert=" + cert + "&key=" + key
	anyName := open(t, "rediss://"+address+"?verify=chain&ca="+ca+mine)
	if d, err := stint.NewLimiter(anyName).Allow(t.Context(), "b", stint.MustLimit("1 per 1m")); err != nil || !d.Allowed {
		t.Errorf("verify=chain: %+v, %v", d, err)
	}
	for _, wrong := range []string{"?ca=" + ca + mine, "?verify=chain" + mine} { // the name, the authority
		if _, err := redislimit.Connect(t.Context(), "rediss://"+address+wrong, redislimit.Options{}); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if _, err := redislimit.Connect(t.Context(), "rediss://"+address+"?server_name=localhost", redislimit.Options{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of unknown authority: %v", err)
	}
}

// fake is a Client that replies as it is told.
type fake func(args []string) (any, error)

func (f fake) Do(_ context.Context, args ...string) (any, error) { return f(args) }

func TestUnsuitableServers(t *testing.T) {
	for name, c := range map[string]struct{ info, want string }{
		"old":         {"redis_version:6.0.16\r\n", "Redis 6.0.16: Stint needs 6.2 or later"},
		"older":       {"redis_version:5.0\r\n", "Redis 5.0: Stint needs 6.2"},
		"no version":  {"hello\r\n", "gives no version"},
		"odd version": {"redis_version:seven.one\r\n", `version "seven.one" cannot be read`},
		"redis 6.2":   {"redis_version:6.2.0\r\n", ""},
		"valkey":      {"redis_version:7.2.4\r\nvalkey_version:8.0.1\r\n", ""},
	} {
		_, err := redislimit.New(t.Context(), fake(func([]string) (any, error) { return c.info, nil }), redislimit.Options{})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	good := fake(func([]string) (any, error) { return "redis_version:7.0.0\r\n", nil })
	if _, err := redislimit.New(t.Context(), good, redislimit.Options{Namespace: "a{b"}); err == nil {
		t.Error("a namespace with a brace was taken")
	}
}

// What does not come from our script is an error, never a decision.
func TestForeignReplies(t *testing.T) {
	var reply any
	c := fake(func(args []string) (any, error) {
		if args[0] == "INFO" {
			return "redis_version:7.0.0\r\n", nil
		}
		return reply, nil
	})
	s, err := redislimit.New(t.Context(), c, redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := stint.NewLimiter(s)
	for _, reply = range []any{nil, int64(1), "", "x", strings.Repeat("\x00", 40), "\x01" + strings.Repeat("\x00", 20), []any{"a"},
		"\x04" + strings.Repeat("\x00", 60), "\x05" + strings.Repeat("\x00", 10), "\x06\x00\x09" + strings.Repeat("\x00", 8), "\x06\x00\x00" + strings.Repeat("\x00", 8)} {
		if d, err := l.Allow(t.Context(), "a", stint.MustLimit("1 per 1m")); err == nil || d.Allowed {
			t.Errorf("reply %q: %+v", reply, d)
		}
	}
}

// Something else that writes under our keys is named, and harms no other request
// of the same call.
func TestBrokenKeys(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client(t)
	l := stint.NewLimiter(open(t, server.URL()))
	p, err := stint.NewPenalty(stint.PenaltySpec{Name: "pen", BanAfter: 1, BanFor: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{"1 per 1m": "t1m:", "1 per 1m fixed_window": "f1m:", "1 per 1m sliding_log": "s1m:", "1 per 1m sliding_window": "w1m/10:"}
	for text, id := range keys {
		limit := stint.MustLimit(text)
		for i, spoil := range [][]string{{"SADD", "", "x"}, {"SET", "", "hello"}, {"SET", "", "12 bytes lon"}, {"SET", "", strings.Repeat("~", 21)}, {"SET", "", strings.Repeat("~", 14)},
			{"RPUSH", "", "x"}, {"RPUSH", "", strings.Repeat("\x00", 40)}, {"RPUSH", "", strings.Repeat("\xff", 40)}} {
			subject := fmt.Sprint("a", i)
			spoil[1] = fmt.Sprintf("stint:{%d:%s}%s", len(subject), subject, id)
			if err := c.Do(t.Context(), c.B().Arbitrary(spoil...).Build()).Error(); err != nil {
				t.Fatal(err)
			}
			ask := func(key string) stint.Request {
				return stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Cost: 1, Penalty: p}}}
			}
			answers := make([]stint.Answer, 3)
			l.TakeBatch(t.Context(), []stint.Request{ask(subject + "before"), ask(subject), ask(subject + "after")}, answers)
			if err := answers[1].Err; err == nil || !strings.Contains(err.Error(), spoil[1]) || !strings.Contains(err.Error(), "delete the key") {
				t.Errorf("%s after %q: %v", text, spoil, err)
			}
			if !answers[0].Allowed || !answers[2].Allowed {
				t.Errorf("%s after %q: its neighbours got %+v", text, spoil, answers)
			}
			if err := stint.Refund(t.Context(), l.Store, &stint.Request{Asks: []stint.Ask{{Key: subject, Limit: limit, Cost: 1}}}); err == nil || !strings.Contains(err.Error(), spoil[1]) {
				t.Errorf("refund under %s after %q: %v", text, spoil, err)
			}
			other := stint.Ask{Key: subject, Limit: stint.MustLimit("other: 1 per 1h"), Cost: 1}
			back := stint.Request{Asks: []stint.Ask{other, {Key: subject, Limit: limit, Cost: 1}}}
			what := "not Stint's"
			if spoil[0] == "SADD" {
				what = "another type"
			}
			if err := stint.Refund(t.Context(), l.Store, &back); err == nil || !strings.Contains(err.Error(), spoil[1]) || i < 2 && (spoil[0] != "SET" || id != "s1m:" && id != "w1m/10:") && !strings.Contains(err.Error(), what) {
				t.Errorf("refund under two limits, of which %s is after %q: %v", text, spoil, err)
			}
			if err := l.Reset(t.Context(), subject, limit); err != nil {
				t.Error(err)
			}
			if d, err := l.Allow(t.Context(), subject, limit); err != nil || !d.Allowed {
				t.Errorf("%s after a reset: %+v, %v", text, d, err)
			}
		}
	}
}

// A denial writes nothing: what lies under the key is the same before and after,
// to the byte, and no key appears.
func TestDenialWritesNothing(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client(t)
	l := stint.NewLimiter(open(t, server.URL()))
	for _, text := range []string{"3 per 1h", "3 per 1h leaky_bucket", "3 per 1h fixed_window", "3 per 1h sliding_log", "3 per 1h sliding_window"} {
		limit := stint.MustLimit(text)
		if _, err := l.AllowN(t.Context(), "a", limit, 3); err != nil {
			t.Fatal(err)
		}
		before := contents(t, c)
		for _, cost := range []int64{1, 3, 4, 1 << 62} {
			if d, err := l.AllowN(t.Context(), "a", limit, cost); err != nil || d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		for _, key := range []string{"a", "b"} {
			if _, err := l.Peek(t.Context(), key, limit); err != nil {
				t.Fatal(err)
			}
		}
		r := stint.Request{Asks: []stint.Ask{{Key: "b", Limit: limit, Cost: 1}, {Key: "a", Limit: limit, Cost: 1}}}
		if d, err := l.Take(t.Context(), &r, nil); err != nil || d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		if after := contents(t, c); after != before {
			t.Errorf("%s: denials changed the store from\n%s\nto\n%s", text, before, after)
		}
	}
}

// contents is all that a server holds, with expiries.
func contents(t *testing.T, c rueidis.Client) string {
	t.Helper()
	keys, err := c.Do(t.Context(), c.B().Keys().Pattern("*").Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		dump, err1 := c.Do(t.Context(), c.B().Dump().Key(k).Build()).ToString()
		expiry, err2 := c.Do(t.Context(), c.B().Arbitrary("PEXPIRETIME").Keys(k).Build()).AsInt64()
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d %q\n", k, expiry, dump)
	}
	return b.String()
}

// Every key expires by itself: never before it is unused, and not much later.
func TestExpiry(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client(t)
	l := stint.NewLimiter(open(t, server.URL()))
	p, err := stint.NewPenalty(stint.PenaltySpec{WarnAfter: 1, BanAfter: 3, BanFor: time.Minute, ForgetAfter: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"7 per 1s", "1 per 1.9s", "100 per 1h burst 5", "7 per 1s leaky_bucket", "7 per 10s fixed_window", "7 per 3s sliding_log",
		"300 per 10s sliding_log", "7 per 3s sliding_window", "7 per 3s sliding_window buckets 1", "999983 per 24h"} {
		limit := stint.MustLimit(text)
		for i := range 40 {
			key := strconv.Itoa(i % 3)
			before := time.Now()
			d, err := l.AllowN(t.Context(), key, limit, int64(1+i%3))
			if err != nil {
				t.Fatal(err)
			}
			if !d.Allowed {
				continue
			}
			name := fmt.Sprintf("stint:{1:%s}%s", key, limit.ID())
			at, err := c.Do(t.Context(), c.B().Arbitrary("PEXPIRETIME").Keys(name).Build()).AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			expiry := time.UnixMilli(at)
			earliest, latest := before.Add(d.ResetAfter), time.Now().Add(d.ResetAfter+2*time.Millisecond)
			if expiry.Before(earliest) || expiry.After(latest) {
				t.Errorf("%s: expires at %s, unused from %s (asked until %s)", text, expiry, earliest, latest)
			}
		}
	}
	r := stint.Request{Asks: []stint.Ask{{Key: "bad", Limit: stint.MustLimit("1 per 1h"), Cost: 2, Penalty: p}}}
	for _, want := range []time.Duration{time.Hour, time.Hour, time.Hour + time.Minute} {
		if _, err := l.Take(t.Context(), &r, nil); err != nil {
			t.Fatal(err)
		}
		left, err := c.Do(t.Context(), c.B().Pttl().Key("stint:{3:bad}p:").Build()).AsInt64()
		if err != nil || left < (want-10*time.Second).Milliseconds() || left > want.Milliseconds()+2 {
			t.Errorf("a record expires in %d ms, want %s (%v)", left, want, err)
		}
	}
}

// An exact log costs at most 11 bytes an entry, from 1,000 entries on; a sorted
// set costs 118 and more.
func TestLogBytes(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client(t)
	l := stint.NewLimiter(open(t, server.URL()))
	for _, n := range []int{1000, 5000, 20000} {
		for _, period := range []string{"1m", "24h", "365d"} {
			limit := stint.MustLimit(fmt.Sprintf("%d per %s sliding_log", n, period))
			step := limit.Spec().Period / time.Duration(n+1)
			start := time.Now()
			rs := make([]stint.Request, n)
			for i := range rs {
				rs[i].Asks = []stint.Ask{{Key: limit.String(), Limit: limit, Cost: 1}}
				rs[i].At = start.Add(time.Duration(i) * step)
				if d, err := l.Take(t.Context(), &rs[i], nil); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			bytes, err := c.Do(t.Context(), c.B().MemoryUsage().Key(fmt.Sprintf("stint:{%d:%s}%s", len(limit.String()), limit, limit.ID())).Samples(0).Build()).AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			perEntry := float64(bytes) / float64(n)
			t.Logf("%s: %.2f bytes an entry", limit, perEntry)
			if perEntry > 11 {
				t.Errorf("%s: %.2f bytes an entry", limit, perEntry)
			}
			if testing.Short() {
				return
			}
		}
	}
}

// Scripts that vanish under load are loaded again: every call is answered, and
// none is charged twice.
func TestScriptFlush(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client(t)
	l := stint.NewLimiter(open(t, server.URL()))
	limit := stint.MustLimit("100000 per 24h sliding_log")
	const callers, each = 8, 250
	stop := make(chan struct{})
	var flusher, wg sync.WaitGroup
	flusher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := c.Do(context.Background(), c.B().ScriptFlush().Build()).Error(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range callers {
		wg.Go(func() {
			for range each {
				if d, err := l.Allow(t.Context(), "a", limit); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	flusher.Wait()
	if d, err := l.Peek(t.Context(), "a", limit); err != nil || d.Remaining != 100000-callers*each {
		t.Errorf("%d calls charged %d", callers*each, 100000-d.Remaining)
	}
}

// A restart with persistence loses neither counts nor the way to the server.
func TestRestart(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	l := stint.NewLimiter(open(t, server.URL()))
	limit := stint.MustLimit("5 per 1h sliding_log")
	for range 3 {
		if d, err := l.Allow(t.Context(), "a", limit); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	server.Restart(t)
	var d stint.Decision
	var err error
	for range 100 { // the first calls may find the old connection closed
		if d, err = l.Peek(t.Context(), "a", limit); err == nil {
			break
		}
	}
	if err != nil || d.Remaining != 2 {
		t.Errorf("after a restart: %+v, %v", d, err)
	}
}

func TestClear(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client(t)
	ours, theirs := open(t, server.URL()+"?namespace=ours"), open(t, server.URL()+"?namespace=ours2")
	limit := stint.MustLimit("1 per 1h")
	for i := range 3000 {
		if _, err := stint.NewLimiter(ours).Allow(t.Context(), strconv.Itoa(i), limit); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stint.NewLimiter(theirs).Allow(t.Context(), "a", limit); err != nil {
		t.Fatal(err)
	}
	if err := ours.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := contents(t, c); strings.Count(left, "\n") != 1 || !strings.Contains(left, "ours2:{1:a}") {
		t.Errorf("left:\n%s", left)
	}
}

// A server that stops answering holds nobody longer than their context, however
// many ask.
func TestFrozenServer(t *testing.T) {
	server := redistest.Start(t)
	l := stint.NewLimiter(open(t, server.URL()+"?timeout=1m"))
	limit := stint.MustLimit("1000000 per 1h")
	if _, err := l.Allow(t.Context(), "a", limit); err != nil {
		t.Fatal(err)
	}
	thaw := server.Freeze(t)
	defer thaw()
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	late := make(chan time.Duration, 10_000)
	for range cap(late) {
		wg.Go(func() {
			if _, err := l.Allow(ctx, "a", limit); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			deadline, _ := ctx.Deadline()
			late <- time.Since(deadline)
		})
	}
	wg.Wait()
	close(late)
	// The calls that rueidis holds would take the minute until the connection is given up.
	for d := range late {
		if d > 30*time.Second {
			t.Fatalf("answered %s after the deadline", d)
		}
	}
}

// Without memory for a record, who is refused stays refused.
func TestNoMemoryForRecords(t *testing.T) {
	server := redistest.Start(t)
	l := stint.NewLimiter(open(t, server.URL()))
	p, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 1, BanFor: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r := stint.Request{Asks: []stint.Ask{{Key: "a", Limit: stint.MustLimit("1 per 1h"), Cost: 1, Penalty: p}}}
	if d, err := l.Take(t.Context(), &r, nil); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	if d, err := l.Take(t.Context(), &r, nil); err != nil || d.Outcome != stint.Limited {
		t.Errorf("refused: %+v, %v", d, err)
	}
	r.Asks[0].Key = "b"
	if d, err := l.Take(t.Context(), &r, nil); err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("a charge: %+v, %v", d, err)
	}
}

// What is left after a refund under a lower amount lasts as long as it says.
func TestRefundAfterChange(t *testing.T) {
	server := redistest.Start(t)
	l := stint.NewLimiter(open(t, server.URL()))
	before, after := stint.MustLimit("100 per 1h"), stint.MustLimit("10 per 1h burst 100")
	if _, err := l.AllowN(t.Context(), "a", before, 100); err != nil {
		t.Fatal(err)
	}
	if err := stint.Refund(t.Context(), l.Store, &stint.Request{Asks: []stint.Ask{{Key: "a", Limit: after, Cost: 50}}}); err != nil {
		t.Fatal(err)
	}
	d, err := l.Peek(t.Context(), "a", before)
	if err != nil || d.Remaining != 50 {
		t.Errorf("%+v, %v", d, err)
	}
}
