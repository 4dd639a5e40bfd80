package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// run is all that came out, and where.
type run struct {
	date    time.Time
	took    time.Duration
	rounds  int
	machine machine
	checked []checked
	tables  []*measured
}

// document writes docs/benchmarks.md. No sentence in it states a figure that was
// not measured in this run.
func (r *run) document(w io.Writer) {
	fmt.Fprintf(w, `# Benchmarks

Stint beside other limiters, and beside floors: what the machine takes for the least that any limiter must do. This page is written by `+"`make bench`"+`, figures and sentences alike; what it was made of is in [benchmarks.raw.jsonl](benchmarks.raw.jsonl). Rows where Stint is not first stay in.

`)
	r.how(w)
	fmt.Fprint(w, "\n## In short\n\nThe token bucket, which a limit is where nothing is said, beside its floor and the fastest peer of its kind (a log is another kind). Above 1: slower than that. The last column counts peers of all kinds.\n\n")
	r.summary(w)
	r.pausesInShort(w)
	r.counting(w)
	group := ""
	for _, m := range r.tables {
		if m.table.group != group {
			group = m.table.group
			fmt.Fprintf(w, "\n## %s\n", groupTitles[group])
			if group != pauseGroup {
				fmt.Fprintf(w, "\n![%s](benchmarks-%s.svg)\n", groupTitles[group], group)
			}
			fmt.Fprintf(w, "\n%s\n", groupNotes[group])
		}
		m.document(w)
	}
	fmt.Fprint(w, "\n## Versions\n\n")
	for _, v := range r.machine.modules {
		fmt.Fprintf(w, "- %s\n", v)
	}
}

var groupTitles = map[string]string{memoryGroup: "In memory", pauseGroup: "Pauses", redisGroup: "Through Redis", serverGroup: "Servers"}

var groupNotes = map[string]string{
	memoryGroup: `There are as many callers as processors. Each time includes the drawing of a key, where it says so the making of its text, and a call through a function value, floors as well.

What is compared is not equal in all: Stint and throttled with LRU bound how many keys they hold, sethvargo and ulule sweep old ones now and then (their defaults: not within this run, and every 30 s), and the rest keep all for ever. x/time/rate answers yes or no; all others also tell how much is left and when there is more. "Stint, three limits at once" decides by three token buckets, all or nothing. The map lookup has no lock and no writer, which no limiter can do without; nor can it do without a clock, so there is a row of both.`,
	pauseGroup: `In memory: one caller asks for one key after another, none of which was there before, once each; meanwhile the tables grow, and what a period has passed for is dropped. A step is from one look at the clock to the next, and the making of the key's text is in it. sethvargo and ulule are told to sweep once a period; throttled holds half as many keys as come in and drops the least recently used, whatever its age; x/time/rate drops none. Each turn has a process of its own, in which Go's collector runs as it does everywhere. The clock alone is the same loop without a limiter, for as long as Stint's token bucket took: its pauses are those of the machine, which others use as well.

"Longest work" is the most that one step had of the processor, by its thread's own clock. Growing and sweeping that the caller does itself are in it, and what the collector makes the caller do. Waiting is not: for a processor, which is the machine's doing, or for the collector or a lock, which is not. So what another goroutine sweeps under a lock shows in the slowest step only. Stint has no such goroutine; all that it sweeps is its callers' work.`,
	redisGroup: `One redis-server on loopback, without persistence, shares the processors with the callers. Memory, where a column says so, is Redis's.

Stint and the sorted-set log use rueidis, which joins the commands of many callers into one write; redis_rate, ulule and throttled are written for go-redis, with its default pool. So there is a floor of each, and a row's ratio is to that of its own client. Where Redis's own time for a decision is the same as the time from decision to decision, Redis bounds the row; where it is far below, the callers, the sockets and the switching between them do. An exact limiter in one script reads the server's clock, reads what is there and writes it with its expiry; the script of one read and one write does that and decides nothing.

throttled asks for the state, decides, and then swaps it if nobody else has: two round trips for what is allowed, one for what is denied, and errors where many want the same key. Time for what ended in an error counts as time of those that did not. "Stint, three limits at once" decides by three token buckets, all or nothing, in one round trip.`,
	serverGroup: `The clients of all rows are Go's own, in a process beside the server's. They share the processors with it, and take their part of the time; CPU and allocations are of the server's process alone, the system's work for it included. A floor does the least that a server of its kind can do: the empty handler reads the request and answers with nothing; the proxy passes it on. The ratio of a list of checks is to a single check.

The empty grpc-go service is there for what a gRPC service costs before it decides anything: a unary call, with a request as long as the empty handler's. Clients usually share one connection, in which the writes of many calls go together; each of the HTTP clients has one, so there is a row of that, too.`,
}

func (r *run) how(w io.Writer) {
	m := &r.machine
	fmt.Fprintf(w, `- **When, what**: %s, commit %s.
- **Machine**: %s; %d processors, shared with whatever else ran on the machine (load %s before, %s after); %s; %s; Redis %s.
- **Commands**: `+"`make bench`"+` for this page (it took %s); `+"`make bench-go`"+` for the benchmarks of each package.
- **How**: each subject is a process of its own. The processes of a table take turns in %d rounds, after one that does not count, each round beginning with another. A figure is the median of the rounds, in brackets the quartiles; a ratio is taken round by round, and its median shown. "Time" is the time from one decision to the next over all callers: throughput turned over, and not a latency, but where the caller is alone.
`, r.date.UTC().Format("2006-01-02 15:04 UTC"), m.commit, m.cpu, m.processors, m.loadBefore, m.loadAfter, m.system, m.golang, m.redis,
		r.took.Round(time.Second), r.rounds)
}

// summary has a line for each table with peers.
func (r *run) summary(w io.Writer) {
	fmt.Fprint(w, "| | Stint | fastest peer of its kind | Stint ÷ peer | Stint ÷ floor | place among limiters |\n|---|---:|---|---:|---:|---|\n")
	for _, m := range r.tables {
		m.summary(w, mainRow, "")
		m.summary(w, goRedisRow, "; Stint over go-redis as well")
	}
}

func (m *measured) summary(w io.Writer, name, more string) {
	main := m.find(name)
	if main == nil || m.table.newcomers > 0 {
		return
	}
	best := m.bestPeer(main)
	var before []string
	of := 1
	for i := range m.results {
		if p := &m.results[i]; p.subject.kind == peer {
			of++
			if p.cost().middle < main.cost().middle {
				before = append(before, p.subject.name)
			}
		}
	}
	place := fmt.Sprintf("%d of %d", len(before)+1, of)
	if len(before) > 0 {
		place += ", after " + strings.Join(before, "; ")
	}
	fmt.Fprintf(w, "| %s | %s | %s, %s | %s | %s | %s |\n", m.table.title+more, duration(main.cost().middle), best.subject.name,
		duration(best.cost().middle), ratio(main.over(best)), ratio(main.over(m.floorOf(main))), place)
}

// counting tells who counts right.
func (r *run) counting(w io.Writer) {
	fmt.Fprintf(w, `
## Who counts right

Before anything is measured, each limiter must limit: 200 requests by one caller at 100 a day; 2,000 by 64 callers at 1,000 a day; whether a refused request for several units leaves what there was; a flood over %d periods of 100 each (100 a period, and 100 more where a burst or a window may add them); in memory, the second of two seconds of flood at 100,000 a second. "–": it has no such thing, or was not asked.

| | alone, of 100 | at once, of 1,000 | errors | refused for several takes nothing | in a flood | second second | |
|---|---:|---:|---:|---|---:|---:|---|
`, floodPeriods)
	for i := range r.checked {
		c := &r.checked[i]
		refusal := map[int64]string{-1: "–", 0: "no", 1: "yes"}[c.Refusal]
		verdict := strings.Join(c.faults(), "; ")
		if verdict == "" {
			verdict = "right"
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
	fmt.Fprint(w, "\n\n| | time | per second | ÷ floor |")
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
	m.where(w)
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
	cell(true, number(math.Round(r.allocs()*10)/10))
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

// display is the name as a row begins with it.
func (s *subject) display() string {
	mark := map[kind]string{ours: "**", floor: "*"}[s.kind]
	return mark + s.name + mark
}

// unasked tells whether a limiter denied where none should.
func (m *measured) unasked() bool {
	for i := range m.results {
		r := &m.results[i]
		if !m.table.drain && r.subject.kind != floor && r.share(func(s *sample) int64 { return s.Denied }) > 0 {
			return true
		}
	}
	return false
}

func (m *measured) failures() bool {
	for i := range m.results {
		if m.results[i].share(func(s *sample) int64 { return s.Errors }) > 0 {
			return true
		}
	}
	return false
}

// bounds says of a table through Redis what bounds the main row, and what it takes
// more than a bare script does.
func (m *measured) bounds(w io.Writer) {
	r := m.find(mainRow)
	if !m.table.redis || r == nil {
		return
	}
	busy := r.cpu() * 1000 / r.cost().middle
	what := "the callers, the sockets and the switching between them bound it"
	switch {
	case busy > 0.9:
		what = "Redis bounds it"
	case busy > 0.6:
		what = "Redis bounds it, and the callers who share the processors with it"
	}
	fmt.Fprintf(w, "\nUnder %s Redis was busy for %s of the time: %s.\n", mainRow, percent(busy), what)
	if least := m.find(leastScript); least != nil {
		fmt.Fprintf(w, "The bare %s: %s, Redis's own %s. %s takes %s times as long, Redis's own %s.\n", leastScript,
			duration(least.cost().middle), duration(least.cpu()*1000), mainRow, ratio(r.over(least)), duration(r.cpu()*1000))
	}
}
