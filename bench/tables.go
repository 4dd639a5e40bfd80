package main

import (
	"slices"
	"time"
)

const million = 1_000_000

// A table is one kind of work, done by several subjects.
type table struct {
	name  string // in the raw output
	group string // the picture it is drawn in
	title string
	about string

	subjects []subject
	floor    string        // the floor of ratios, unless a subject names another
	than     string        // its description, if it is not a floor
	keys     int           // how many different keys, drawn uniformly
	fresh    bool          // keys are made for each request, not beforehand
	fill     bool          // make all keys known before
	drain    bool          // exhaust the key before
	callers  int           // at once; 0: as many as procs
	procs    int           // GOMAXPROCS; 0: as the machine has
	batch    int           // calls between two looks at the clock
	slice    time.Duration // how long a subject's turn is
	redis    bool
	store    bool // servers get Redis; its time is not shown
	profile  bool // show where the servers' time goes

	newcomers int // keys that come in, each once, in a table of pauses; 0: another table
	rounds    int // of pauses, at most

	limit, logLimit spec
}

var (
	// plenty is never exhausted.
	plenty = spec{1_000_000_000, time.Hour}
	// plentyLog is never exhausted either, and remembers a tenth of a second.
	plentyLog = spec{million, 100 * time.Millisecond}
	// plentyRedisLog remembers a second.
	plentyRedisLog = spec{million, time.Second}
	// perKey is a caller's limit for a day.
	perKey = spec{100, 24 * time.Hour}
)

const (
	memoryGroup = "memory"
	redisGroup  = "redis"
	serverGroup = "servers"
	pauseGroup  = "pauses"
)

// tables are all tables; short: few keys and tiny turns.
func tables(short bool) []table {
	var all []table
	inMemory := slices.Concat(memoryFloors, memoryOurs, memoryPeers)
	for _, procs := range []int{1, 2} {
		on := map[int]string{1: "one processor", 2: "two processors"}[procs]
		suffix := map[int]string{1: "-1", 2: "-2"}[procs]
		base := table{group: memoryGroup, subjects: inMemory, procs: procs, batch: 256, slice: 100 * time.Millisecond}

		hot := base
		hot.name, hot.title, hot.keys, hot.fill = "memory-hot"+suffix, "One hot key, allowed; "+on, 1, true
		hot.about = "All callers use the same key, and the limit is never reached."
		hot.subjects = slices.Concat(inMemory, memoryHotOurs)
		hot.floor, hot.limit, hot.logLimit = memoryFloors[0].name, plenty, plentyLog

		keys := base
		keys.name, keys.title, keys.keys, keys.fill = "memory-keys"+suffix, "A million keys; "+on, million, true
		keys.about = "Keys are drawn uniformly. Each had one request before, so none is new. Memory is what the process holds more after that, including the text of the keys.\n\n" +
			"Each request, also of a floor, makes the text of its key anew, as a server makes it from the request. This one allocation is not among those shown. " +
			"With texts made beforehand, the processor would fetch the texts of the next requests, and their state, while this request waits. That favours the shortest code most, and the fetches would be work of the benchmark itself."
		keys.floor, keys.limit, keys.logLimit, keys.fresh = memoryFloors[2].name, perKey, perKey, true

		// As many benchmarks do, and no server.
		same := keys
		same.name, same.title, same.fresh = "memory-keys-same"+suffix, "A million keys, the same strings; "+on, false
		same.about = "As with a million keys above, but each request uses one of a million strings that were made beforehand, the same again and again. " +
			"So this measures how well the work of requests in a tight loop overlaps, and two memory fetches of the benchmark itself: a string's header and its text. " +
			"Reading the clock can end the overlap: compare the map lookup with the clock and the one without. " +
			"The strings are copies of those in the first requests, so every limiter must compare them with its own."

		denied := base
		denied.name, denied.title, denied.keys, denied.drain = "memory-denied"+suffix, "One hot key, denied; "+on, 1, true
		denied.about = "The key is exhausted before, so each request is refused."
		denied.floor, denied.limit, denied.logLimit = memoryFloors[0].name, perKey, perKey
		all = append(all, hot, keys)
		if procs == 1 {
			all = append(all, same)
		}
		all = append(all, denied)
	}

	few := table{name: "pauses-1M", group: pauseGroup, title: "A million keys come in", newcomers: million, rounds: 1}
	few.about = "Each key may have one request in 200 ms."
	few.limit = spec{1, 200 * time.Millisecond}
	few.logLimit, few.subjects = few.limit, pauseSubjects(few.newcomers)
	all = append(all, few)
	if !short {
		many := few
		many.name, many.title, many.newcomers = "pauses-10M", "Ten million keys come in", 10*million
		many.about = "Each key may have one request in 2 s. Only Stint's token bucket, to save time."
		many.limit = spec{1, 2 * time.Second}
		many.subjects = longPauseSubjects(many.newcomers)
		all = append(all, many)
	}

	base := table{group: redisGroup, subjects: slices.Concat(redisFloors, redisOurs, redisPeers), floor: incrRueidis,
		redis: true, callers: 64, batch: 1, slice: 200 * time.Millisecond}
	hot := base
	hot.name, hot.title, hot.keys, hot.fill = "redis-hot", "One hot key, allowed; 64 callers", 1, true
	hot.about = "64 callers use the same key. Each sends a request after the answer to its previous one."
	hot.limit, hot.logLimit = plenty, plentyRedisLog
	keys := base
	keys.name, keys.title, keys.keys, keys.fill = "redis-keys", "A million keys; 64 callers", million, true
	keys.about = "Keys are drawn uniformly. All are in Redis beforehand, so none is new. Memory is what Redis holds for one key after one request."
	keys.limit, keys.logLimit = perKey, perKey
	lone := hot
	lone.name, lone.title, lone.callers = "redis-lone", "One hot key, allowed; a lone caller", 1
	lone.about = "One caller waits for each answer. This is the shortest round trip."
	denied := base
	denied.name, denied.title, denied.keys, denied.drain = "redis-denied", "One hot key, denied; 64 callers", 1, true
	denied.about = "The key is exhausted before, so 64 callers are refused."
	denied.limit, denied.logLimit = perKey, perKey
	all = append(all, hot, keys, lone, denied)

	all = append(all, table{name: "servers", group: serverGroup, title: "Over loopback; 16 callers",
		about:    "The upstream, behind the proxies, runs in the clients' process. There are two rules: one that does not match, and one with two limits.",
		subjects: serverSubjects, profile: true, floor: emptyHandler, keys: 1, callers: serverCallers, batch: 1, slice: 300 * time.Millisecond, limit: plenty})

	all = append(all, envoyTables()...)
	all = append(all, holdTables()...)

	if short {
		for i := range all {
			all[i].keys, all[i].newcomers = min(all[i].keys, 1000), min(all[i].newcomers, 1000)
			all[i].slice = 5 * time.Millisecond
		}
	}
	return all
}
