package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// A ruleWay tells the rules of a file apart, so that one of many applies to a request.
type ruleWay struct {
	name  string
	match string // of the rule with number %[1]d, or address %[2]s
	most  int    // rules; 0: as many as the run has
}

const (
	byOperation = "operation"
	byNetwork   = "network"
	byPattern   = "regular expression"

	mostInTurn = 1000 // rules, if all are evaluated
)

var ruleWays = []ruleWay{
	{name: byOperation, match: `operation == "o%[1]d"`},
	{name: "attribute", match: `attrs.x == "o%[1]d"`},
	{name: "header", match: `request.headers["x-tenant"] == "o%[1]d"`},
	{name: "host", match: `request.host == "o%[1]d.example.com"`},
	{name: "path", match: `request.path == "/o%[1]d"`},
	{name: "path under", match: `request.path.under("/o%[1]d")`},
	{name: byNetwork, match: `client.ip in cidr("%[2]s")`},
	{name: byPattern, match: `request.path.matches("^/o%[1]d$")`, most: mostInTurn}, // which no index finds
}

// A ruleRow finds what applies to a request with a file of n rules, or does what that is compared with.
type ruleRow struct {
	n    int
	next func() error // the next request
	result
}

// ruleRun is all that is measured of files with many rules.
type ruleRun struct {
	about
	sizes    []int // of files
	slice    time.Duration
	rows     []*ruleRow
	networks []int      // how many
	lists    []*ruleRow // of so many networks
	geo      []*geoRow  // none: there is no nginx
	loads    []*ruleLoad
}

// benchRules measures files with many rules and writes docs/benchmarks-rules.md and its picture.
func benchRules(short bool, rounds int, out string, progress io.Writer) error {
	r := &ruleRun{about: about{Date: time.Now(), Rounds: rounds, Machine: thisMachine(nil, []string{celModule})},
		sizes: []int{1, 10, 100, 1000, 10_000}, networks: []int{1, 1000, 10_000, 1_000_000}, slice: 20 * time.Millisecond}
	loaded := []int{1000, 10_000}
	if short {
		r.sizes, r.networks, r.slice, loaded = []int{1, 10, 100}, []int{1, 100, 1000}, time.Millisecond, []int{10, 100}
	}
	// Files are loaded first, while there is no other heap.
	if err := r.measureLoads(loaded); err != nil {
		return err
	}
	fmt.Fprintf(progress, "%s: loaded\n", time.Since(r.Date).Round(time.Second))
	if err := r.open(); err != nil {
		return err
	}
	defer r.endGeo()
	switch program, err := exec.LookPath("nginx"); {
	case err != nil:
		fmt.Fprintf(progress, "nginx's rows are skipped: %s\n", err)
	default:
		r.Machine.Modules = append(r.Machine.Modules, nginxVersion(program))
		if r.geo, err = openGeo(program, r.networks); err != nil {
			return err
		}
	}
	fmt.Fprintf(progress, "%s: opened\n", time.Since(r.Date).Round(time.Second))
	if err := r.measure(); err != nil {
		return err
	}
	r.Took, r.Machine.LoadAfter = time.Since(r.Date), load()
	var page, picture bytes.Buffer
	r.page(&page)
	r.picture(&picture)
	return errors.Join(
		os.WriteFile(filepath.Join(out, "benchmarks-rules.md"), page.Bytes(), 0o644),
		os.WriteFile(filepath.Join(out, "benchmarks-rules.svg"), picture.Bytes(), 0o644))
}

// open makes all rows.
func (r *ruleRun) open() error {
	row := func(row *ruleRow, err error) error {
		r.rows = append(r.rows, row)
		return err
	}
	errs := []error{row(celAlone())}
	for _, n := range r.sizes {
		errs = append(errs, row(goMap(n)))
		for _, w := range ruleWays {
			if w.most == 0 || n <= w.most {
				errs = append(errs, row(stintRow(w.name, n, ruleFile(w.matches(n)))))
			}
		}
		if n <= mostInTurn {
			errs = append(errs, row(celInTurn(celOperations, `operation == "o%d"`, n)), row(celInTurn(celPatterns, `path.matches("^/o%d$")`, n)))
		}
	}
	for _, n := range r.networks {
		list, err := networksRow(n)
		r.lists, errs = append(r.lists, list), append(errs, err)
	}
	return errors.Join(errs...)
}

// measure lets the rows take turns, in rounds that each begin with another row. The first round does not
// count.
func (r *ruleRun) measure() error {
	// A collection during one row's turn would be for the heap of all rows. So garbage is not charged to
	// anybody, which favours cel-go in turn: it allocates for each program.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	all := slices.Concat(r.rows, r.lists)
	for round := -1; round < r.Rounds; round++ {
		runtime.GC()
		for j := range all {
			row := all[(j+round+1)%len(all)]
			s, err := row.turn(r.slice)
			if err != nil {
				return fmt.Errorf("%s, %d: %w", row.subject.name, row.n, err)
			}
			if round >= 0 {
				row.Samples = append(row.Samples, s)
			}
		}
		if err := r.measureGeo(round); err != nil {
			return err
		}
	}
	return nil
}

// turn takes at least d, in time of the processor: what else runs on the machine does not count.
func (row *ruleRow) turn(d time.Duration) (s sample, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := threadTime()
	if start == 0 {
		return s, errors.New("the time of a thread is unknown here")
	}
	for batch := int64(1); s.Nanos < int64(d); batch *= 2 { // few looks at the clock
		for range batch {
			if err := row.next(); err != nil {
				return s, err
			}
		}
		s.Calls, s.Nanos = s.Calls+batch, threadTime()-start
	}
	runtime.ReadMemStats(&after)
	s.Mallocs = after.Mallocs - before.Mallocs
	return s, nil
}

// newRuleRow does the request with each number below requestsInTurn in turn.
func newRuleRow(name string, kind kind, n int, do func(at int) error) *ruleRow {
	at := 0
	return &ruleRow{n: n, result: result{subject: &subject{name: name, kind: kind}}, next: func() error {
		at = (at + 1) % requestsInTurn
		return do(at)
	}}
}

// stintRow asks the rules of a file of n rules for requests that one of them applies to.
func stintRow(name string, n int, file []byte) (*ruleRow, error) {
	set, err := rules.Parse("rules.yaml", file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	inputs := make([]*rules.Input, requestsInTurn)
	for j, i := range numbers(n) {
		inputs[j] = ruleInput(i)
	}
	return setRow(name, n, set, inputs)
}

// networksRow has one rule for a list of n networks.
func networksRow(n int) (*ruleRow, error) {
	networks := rules.NewNetworks()
	for i := range n {
		networks.Add(netip.PrefixFrom(ruleAddress(i), 32))
	}
	lists := rules.NewLists("many")
	lists.Set("many", networks)
	set, err := rules.Parse("rules.yaml", ruleFile([]string{`client.ip in list("many")`}))
	if err == nil {
		set, err = set.On(&rules.Instance{Lists: lists})
	}
	if err != nil {
		return nil, err
	}
	inputs := make([]*rules.Input, requestsInTurn)
	for j, i := range numbers(n) {
		inputs[j] = ruleInput(i)
	}
	return setRow("a list", n, set, inputs)
}

// setRow finds what applies to inputs: one rule to each.
func setRow(name string, n int, set *rules.Set, inputs []*rules.Input) (*ruleRow, error) {
	var plan rules.Plan
	for i, in := range inputs {
		if err := set.Asks(in, &plan); err != nil || len(plan.Rules) != 1 {
			return nil, fmt.Errorf("%s: request %d of a file of %d rules: %d apply (%v)", name, i, n, len(plan.Rules), err)
		}
	}
	return newRuleRow(name, ours, n, func(at int) error {
		if err := set.Asks(inputs[at], &plan); err != nil || len(plan.Asks) != 1 {
			return fmt.Errorf("%d rules apply (%v)", len(plan.Asks), err)
		}
		return nil
	}), nil
}

// ruleFile has a rule for each match.
func ruleFile(matches []string) []byte {
	var b bytes.Buffer
	b.WriteString("rules:\n")
	for i, match := range matches {
		fmt.Fprintf(&b, "- {name: rule%d, match: '%s', key: client.ip, limits: [100 per 1m]}\n", i, match)
	}
	return b.Bytes()
}

// matches are those of n rules.
func (w *ruleWay) matches(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(w.match, i, ruleAddress(i))
	}
	return all
}

func ruleAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// ruleInput is a request that the rule with number i applies to, whatever tells rules apart.
func ruleInput(i int) *rules.Input {
	text := fmt.Sprint("o", i)
	return &rules.Input{Client: ruleAddress(i), Cost: 1, Operation: text, Attrs: map[string]any{"x": text},
		Request: &rules.Request{Method: "POST", Path: "/" + text, Host: text + ".example.com", Header: http.Header{"X-Tenant": {text}}}}
}

// numbers are those of the rules that requests in turn are for, in disorder. There are as many requests for
// a small file, so that all rows read as much memory for requests. With one request again and again, the
// processor would learn the way to its rule.
func numbers(n int) []int {
	all := rand.New(rand.NewPCG(1, 2)).Perm(requestsInTurn)
	for i := range all {
		all[i] = all[i] * n / requestsInTurn
	}
	return all
}

const requestsInTurn = 256

// goMap looks the operation up: the least that an index does.
func goMap(n int) (*ruleRow, error) {
	places := map[string]int{}
	for i := range n {
		places[fmt.Sprint("o", i)] = i
	}
	of, operations := numbers(n), make([]string, requestsInTurn)
	for j, i := range of {
		operations[j] = fmt.Sprint("o", i)
	}
	return newRuleRow(goMapRow, floor, n, func(at int) error {
		if i, ok := places[operations[at]]; !ok || i != of[at] {
			return errors.New("no rule applies")
		}
		return nil
	}), nil
}

const goMapRow = "a Go map"
