package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// document writes all tables of this run, which are too much for docs/benchmarks.md.
func (r *run) document(w io.Writer) {
	r.counting(w)
	group := ""
	for _, m := range r.tables {
		if m.table.group != group {
			group = m.table.group
			fmt.Fprintf(w, "\n## %s\n\n%s\n", groupTitles[group], groupNotes[group])
		}
		m.document(w)
	}
}

var groupTitles = map[string]string{memoryGroup: "In memory", pauseGroup: "Pauses", redisGroup: "Through Redis", serverGroup: "Servers", holdsGroup: "Holds"}

var groupNotes = map[string]string{
	memoryGroup: `There are as many callers as processors. Each time, also of a floor, includes drawing a key and a call through a function value. Where the table says so, it also includes making the text of the key.

The limiters differ in what they do:

- Stint and throttled with LRU bound how many keys they hold. sethvargo and ulule sweep old keys now and then (by default: not within this run, and every 30 s). The others keep all keys for ever.
- x/time/rate answers yes or no. All others also return how much is left and when there is more.
- "Stint, three limits at once" decides by three token buckets, all or nothing.
- The map lookup has no lock and no writer, but every limiter needs them. Every limiter also needs a clock, so there is a row of a map lookup with the clock.`,
	pauseGroup: `These tables are in memory. One caller sends one request for each of many new keys, one after another. Meanwhile the tables grow, and keys whose period has passed are dropped. A step is the time from one reading of the clock to the next, including making the text of the key. sethvargo and ulule are set to sweep once a period. throttled holds half as many keys as come in and drops the least recently used, whatever its age. x/time/rate drops none. Each turn runs in its own process, with Go's garbage collector at its defaults. The row of the clock is the same loop without a limiter, for as long as Stint's token bucket took: its pauses are those of the machine, which others use as well.

"Longest work" is the most processor time that one step took, by the clock of its thread. It includes the growing and sweeping that the caller does itself, and the work that the collector makes the caller do. It excludes waiting: for a processor, which depends on the machine, and for the collector or a lock, which does not. So if another goroutine sweeps under a lock, this shows only in the slowest step. Stint has no such goroutine: its callers do all of its sweeping.`,
	redisGroup: `One redis-server on loopback, without persistence, shares the processors with the callers. A column of memory is Redis's memory.

Stint and the sorted-set log use rueidis, which joins the commands of many callers into one write. redis_rate, ulule and throttled are written for go-redis, with its default pool. So each client has its own floor, and a row's ratio is to the floor of its client. If Redis's own time for a decision equals the time from decision to decision, Redis bounds the row. If it is far below, the callers, the sockets and the switching between them do. An exact limiter in one script reads the server's clock, reads the state and writes it with its expiry. The script of one read and one write does that and decides nothing.

throttled reads the state, decides, and then swaps the state if nobody else has: two round trips for an allowed request, one for a denied one, and errors where many callers use the same key. The time of requests that ended in an error is added to the time of the others. "Stint, three limits at once" decides by three token buckets, all or nothing, in one round trip.`,
	serverGroup: `The clients of all rows are Go's own, in a process beside the server's. They share the processors with the server and take part of the time. CPU and allocations are those of the server's process alone, including the system's work for it. A floor does the least that a server of its kind can do: the empty handler reads the request and sends an empty answer; the proxy passes the request on. The ratio of a list of checks is to a single check.

The empty grpc-go service shows what a gRPC service costs before it decides anything: a unary call, with a request as long as the empty handler's. gRPC clients usually share one connection, which joins the writes of many calls. Each HTTP client has its own connection, so there is also a row of gRPC with one connection for each client.

In the tables of Envoy's rate limit service, the rows of Stint and of envoyproxy/ratelimit are their programs, each in a process of its own. The empty service answers OK.`,
	holdsGroup: `A time is that of a whole request. "Stint, hold and settle" holds a unit of a budget (Limiter.Reserve) and charges what the request cost when it ends (Reservation.Settle). "Stint, acquire and release" is in flight under an in-flight limit (Limiter.Acquire). "Stint, one decision" takes a unit of a budget at once. Stint sends identical decisions of many callers as one, and Redis then counts them at once; each hold is a record of its own. Where costs vary from 1 to 1,000, as those of tokens do, decisions are not identical either, and the ratio is to such a decision.

The sorted-set semaphore has a member for each holder, scored with the instant at which it runs out. A script drops what ran out, counts the members and adds one; the holder removes its own with ZREM. It renews nothing, and it cannot be decided together with other limits. redis_rate, x/time/rate and INCR hold nothing: their time is that of one call.`,
}

func (r *run) counting(w io.Writer) {
	fmt.Fprintf(w, `## Which limiters count correctly

Before any measurement, each limiter is tested:

- *alone*: 200 requests by one caller at 100 a day;
- *at once*: 2,000 requests by 64 callers at 1,000 a day;
- *refused for several takes nothing*: whether a refused request for several units leaves the remaining units;
- *in a flood*: a flood over %d periods of 100 each (100 a period, and 100 more where a burst or a window may add them);
- *second second*: in memory, the second of two seconds of flood at 100,000 a second.

"–": the limiter has no such function, or was not tested.

| | alone, of 100 | at once, of 1,000 | errors | refused for several takes nothing | in a flood | second second | |
|---|---:|---:|---:|---|---:|---:|---|
`, floodPeriods)
	for i := range r.checked {
		c := &r.checked[i]
		refusal := map[int64]string{-1: "–", 0: "no", 1: "yes"}[c.Refusal]
		verdict := strings.Join(c.faults(), "; ")
		if verdict == "" {
			verdict = "correct"
		}
		fmt.Fprintf(w, "| %s, %s | %s | %s | %s | %s | %s | %s | %s |\n", c.Name, c.Where, count(c.Alone), count(c.Together), count(c.Errors), refusal,
			count(c.Flood), count(c.Large), verdict)
	}
}

func (m *measured) document(w io.Writer) {
	t := m.table
	if t.newcomers > 0 {
		m.pauses(w)
		return
	}
	fmt.Fprintf(w, "\n### %s\n\n%s", t.title, t.about)
	hasPeers, denials, failures := m.bestPeer(&m.results[0]) != nil, m.unasked(), m.failures()
	fmt.Fprintf(w, "\n\n| | time | per second | ÷ %s |", cmp.Or(t.than, "floor"))
	rule := "\n|---|---:|---:|---:|"
	column := func(when bool, name string) {
		if when {
			fmt.Fprintf(w, " %s |", name)
			rule += "---:|"
		}
	}
	hasMemory := t.fill && t.keys > 1
	column(hasPeers, "÷ best peer")
	column(true, "allocations")
	column(t.batch == 1, "99th percentile of a call")
	column(t.redis, "Redis's time")
	column(t.group == serverGroup, "CPU of the server")
	column(t.group == serverGroup, "CPU ÷ floor")
	column(hasMemory, "bytes per key")
	column(failures, "errors")
	column(denials, "denied")
	fmt.Fprintln(w, rule)
	for _, r := range m.sorted() {
		m.row(w, r, hasPeers, hasMemory, failures, denials)
	}
	m.bounds(w)
	m.against(w)
	m.where(w)
}

// against compares programs that serve Envoy's rate limit service with each other.
func (m *measured) against(w io.Writer) {
	r, p := m.find(stintEnvoy), m.find(peerEnvoy)
	if r == nil || p == nil {
		return
	}
	fmt.Fprintf(w, "\n“%s” ÷ “%s”: throughput %s, CPU of the server %s, 99th percentile %s.\n", stintEnvoy, peerEnvoy,
		ratio(p.over(r)), ratio(r.cpuOver(p)), ratio(r.ratio(p, func(s *sample) float64 { return float64(s.P99) })))
}

func (m *measured) row(w io.Writer, r *result, hasPeers, hasMemory, failures, denials bool) {
	t, c := m.table, r.cost()
	fmt.Fprintf(w, "| %s | %s (%s–%s) | %s |", r.subject.display(), duration(c.middle), duration(c.low), duration(c.high), number(1e9/c.middle))
	cell := func(when bool, text string) {
		if when {
			fmt.Fprintf(w, " %s |", text)
		}
	}
	below, beside := "", ""
	if f := m.floorOf(r); f != nil {
		below = ratio(r.over(f))
	}
	if p := m.bestPeer(r); p != nil && r.subject.kind == ours {
		beside = ratio(r.over(p))
	}
	cell(true, below)
	cell(hasPeers, beside)
	allocs := ""
	if !r.subject.foreign {
		allocs = number(math.Round(r.allocs()*10) / 10)
	}
	cell(true, allocs)
	cell(t.batch == 1, duration(r.p99()))
	cell(t.redis || t.group == serverGroup, duration(r.cpu()*1000))
	if f := m.floorOf(r); f != nil {
		cell(t.group == serverGroup, ratio(r.cpuOver(f)))
	} else {
		cell(t.group == serverGroup, "")
	}
	cell(hasMemory, number(r.BytesPerKey))
	cell(failures, percent(r.share(func(s *sample) int64 { return s.Errors })))
	cell(denials, percent(r.share(func(s *sample) int64 { return s.Denied })))
	fmt.Fprintln(w)
}

func (s *subject) display() string {
	mark := map[kind]string{ours: "**", floor: "*"}[s.kind]
	return mark + s.name + mark
}

// unasked reports whether a limiter denied where none should.
func (m *measured) unasked() bool {
	return !m.table.drain && slices.ContainsFunc(m.results, func(r result) bool {
		return r.subject.kind != floor && r.share(func(s *sample) int64 { return s.Denied }) > 0
	})
}

func (m *measured) failures() bool {
	return slices.ContainsFunc(m.results, func(r result) bool { return r.share(func(s *sample) int64 { return s.Errors }) > 0 })
}

// bounds describes what bounds the main row through Redis, and its cost beyond a bare script.
func (m *measured) bounds(w io.Writer) {
	r := m.find(mainRow)
	if !m.table.redis || r == nil {
		return
	}
	busy := r.cpu() * 1000 / r.cost().middle
	what := "the callers, the sockets and the switching between them bound the row"
	switch {
	case busy > 0.9:
		what = "Redis bounds the row"
	case busy > 0.6:
		what = "Redis bounds the row, and the callers that share the processors with it"
	}
	fmt.Fprintf(w, "\nIn the row “%s”, Redis was busy for %s of the time: %s.\n", mainRow, percent(busy), what)
	if least := m.find(leastScript); least != nil {
		fmt.Fprintf(w, "The row “%s” takes %s, of which %s is Redis's own time. %s takes %s times as long; Redis's own time is %s.\n", leastScript,
			duration(least.cost().middle), duration(least.cpu()*1000), mainRow, ratio(r.over(least)), duration(r.cpu()*1000))
	}
}
