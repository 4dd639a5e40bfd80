package decide_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// row is a statement about decisions, and the story that shows it. See say and told for the words of its
// steps.
type row struct {
	says  string // the statement
	rules string // a file of rules
	with  []with
	steps []step
}

// step is what happens some time after the step before, and what it answers and tells, separated by "; ".
type step struct {
	after time.Duration
	does  func(*fixture) string
	want  string
}

// with changes what a row's Decider is made of.
type with func(*fixture)

// A row counts in a Memory, unless one of these says otherwise.
var (
	layered with = func(f *fixture) { f.layers = true }                                                  // a store of a fleet, with its layers
	watched with = func(f *fixture) { f.all = true }                                                     // tell of each decision and call, too
	small   with = func(f *fixture) { f.memory.MaxKeys = 2 }                                             // the memory is full with two keys
	paced   with = func(f *fixture) { f.instance = stint.MustLimit("instance: 2 per 1m fixed_window") }  // the Limiter has a limit of its own
	lenient with = func(f *fixture) { f.options.Ambiguity = rules.AnyAmbiguity }                         // ambiguous requests are decided
	busy    with = func(f *fixture) { f.options.Admit = f.admit }                                        // see full
	tight   with = func(f *fixture) { f.options.FitsHold = func([]stint.Ask) error { return errTight } } // no hold fits its text
)

func envoy(file string) with {
	return func(f *fixture) { f.envoy = "domain: d\ndescriptors:\n" + file }
}
func ban(b rules.Ban) with { return func(f *fixture) { f.controls.Bans = append(f.controls.Bans, b) } }
func keys(n int) with      { return func(f *fixture) { f.memory.MaxKeys = n } }
func override(o rules.Override) with {
	return func(f *fixture) { f.controls.Overrides = append(f.controls.Overrides, o) }
}

var errTight = fmt.Errorf("%w: the hold is too long", stint.ErrRequest)

// fixture is a Decider with all that it needs. It is its own Watcher and Instance, which write down what they
// learn.
type fixture struct {
	*testing.T
	*decide.Decider
	options  decide.Options
	set      decide.Set
	envoy    string
	controls rules.Controls
	layers   bool
	all      bool // what each decision and each call of the store tells is written down, too
	memory   *stint.Memory
	store    *limittest.Faulty
	full     bool         // this instance is overloaded
	instance *stint.Limit // of the Limiter
	trial    trial
	down     error // the store does not decide; see decide.Options.StoreError
	last     []decide.Request
	beside   *limittest.Faulty // the same store, for the calls about rules in shadow mode

	mu        sync.Mutex
	before    int           // calls of the store before the step
	fails     map[int]fault // by number of the call in the step, from 1; see besides
	words     []string
	decisions []string        // those of them about decisions, which may be told at the same time
	methods   map[string]bool // that were called
	decided   int             // how many decisions were told in this step
}

// fault is how a call of the store fails, and how late that is.
type fault struct {
	limittest.Fault
	late time.Duration
	bug  bool // the store panics
}

// besides is the number of all calls about rules in shadow mode, and always that of all others.
const always, besides = 0, -1

// fault is what happens to this call of the store.
func (f *fixture) fault(call int) limittest.Fault {
	f.mu.Lock()
	if call != besides {
		call -= f.before
	}
	of, ok := f.fails[call]
	if !ok && call != besides {
		of = f.fails[always]
	}
	f.mu.Unlock()
	time.Sleep(of.late)
	if of.bug {
		panic("the store")
	}
	return of.Fault
}

// while does a step while calls of the store with these numbers have a fault.
func (f *fixture) while(of fault, does func(*fixture) string, calls ...int) string {
	f.mu.Lock()
	for _, call := range calls {
		f.fails[call] = of
	}
	f.mu.Unlock()
	defer func() {
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		clear(f.fails)
	}()
	return does(f)
}

// tell runs the row, and returns the methods of Watcher and Instance that it calls.
func (r *row) tell(t *testing.T) (methods map[string]bool) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, r)
		for i, s := range r.steps {
			if got := f.step(&s); got != s.want {
				t.Errorf("%s, step %d:\n got %s\nwant %s", r.says, i+1, got, s.want)
			}
		}
		for i := range f.last {
			if e := f.last[i].Settlement; e != nil {
				_ = e.End(t.Context(), nil)
			}
		}
		time.Sleep(time.Minute) // calls under way end
		f.options.Fleet.Close()
		methods = f.methods
	})
	return methods
}

func newFixture(t *testing.T, r *row) *fixture {
	f := &fixture{T: t, memory: new(stint.Memory), methods: map[string]bool{}, fails: map[int]fault{}}
	f.options.FitsHold = func([]stint.Ask) error { return nil }
	for _, change := range r.with {
		change(f)
	}
	var files []rules.File
	if f.envoy != "" {
		files = append(files, rules.File{Name: "envoy.yaml", Data: []byte(f.envoy), Envoy: true})
	}
	files = append(files, rules.File{Name: "rules.yaml", Data: []byte(r.rules)})
	set, err := rules.ParseFiles(files)
	if err != nil {
		t.Fatalf("%s: %v", r.says, err)
	}
	set, problems := set.With(&f.controls)
	if len(problems) > 0 {
		t.Fatalf("%s: %v", r.says, problems)
	}
	f.set = decide.Set{Set: set, Watcher: f}
	f.store = &limittest.Faulty{Store: f.memory, Fault: func(call int) limittest.Fault { return f.fault(call) }}
	f.beside = &limittest.Faulty{Store: f.memory, Fault: func(int) limittest.Fault { return f.fault(besides) }}
	var store, beside stint.Store = f.store, f.beside
	if !f.layers {
		store, beside = inMemory{f.store}, inMemory{f.beside}
	}
	start := time.Now()
	o := &f.options
	o.Set = func() *decide.Set { return &f.set }
	o.Fleet = fleet.New(store, fleet.Options{Called: func(time.Duration, error) {}})
	o.Limiter, o.Unlayered = stint.NewLimiter(o.Fleet), stint.NewLimiter(beside)
	o.StoreError = func() error { return f.down }
	o.Instance = f
	o.Now = func() time.Duration { return time.Since(start) }
	o.Timeout, o.MostKept = 25*time.Millisecond, 4
	o.Limiter.Instance = f.instance
	f.trial = trial{f: f, limiter: stint.NewLimiter(new(stint.Memory))}
	f.Decider = decide.New(*o)
	return f
}

// inMemory is a Faulty over a Memory, which fleet.New puts no layers around.
type inMemory struct{ *limittest.Faulty }

func (m inMemory) Unwrap() stint.Store { return m.Store }

func (f *fixture) admit(context.Context) error {
	if f.full {
		return friend.ErrOverloaded
	}
	return nil
}

// step returns what s answers, and what is told until nothing happens any more.
func (f *fixture) step(s *step) string {
	f.mu.Lock()
	f.words, f.decisions, f.decided = nil, nil, 0
	f.mu.Unlock()
	time.Sleep(s.after)
	synctest.Wait()
	f.mu.Lock()
	f.before = f.store.Calls()
	f.mu.Unlock()
	answer := s.does(f)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	parts := f.decisions
	if answer != "" {
		parts = append([]string{answer}, parts...)
	}
	for words := f.words; len(words) > 0; {
		n := 1
		for n < len(words) && words[n] == words[0] {
			n++
		}
		text := words[0]
		if n > 1 {
			text += fmt.Sprintf(", %d times", n)
		}
		parts, words = append(parts, text), words[n:]
	}
	return strings.Join(parts, "; ")
}

// from is a request of a user, changed by options.
func from(user string, options ...func(*decide.Request)) decide.Request {
	t := decide.Request{In: &rules.Input{Attrs: map[string]any{"user": user}, Client: netip.MustParseAddr("192.0.2.1"), Cost: 1}}
	for _, change := range options {
		change(&t)
	}
	return t
}

func cost(n int64) func(*decide.Request) { return func(t *decide.Request) { t.In.Cost = n } }
func does(operation string) func(*decide.Request) {
	return func(t *decide.Request) { t.In.Operation = operation }
}
func at(client string) func(*decide.Request) {
	return func(t *decide.Request) { t.In.Client = netip.MustParseAddr(client) }
}
func waits(longest time.Duration) func(*decide.Request) {
	return func(t *decide.Request) { t.MaxDelay = longest }
}

// sends is an HTTP request to a path, with a header and its value.
func sends(path, header, value string) func(*decide.Request) {
	return func(t *decide.Request) {
		target, err := rules.ReadTarget(path)
		if err != nil {
			panic(err)
		}
		t.In.Request = &rules.Request{Method: "GET", Path: target.Path, Ambiguous: target.Ambiguous, Header: http.Header{header: {value}}}
	}
}

// ends means that the end of the request will be known; next is where it goes on.
func ends(next decide.Next) func(*decide.Request) {
	return func(t *decide.Request) { t.Settlement = &decide.Settlement{Next: next} }
}

// runs is a request whose end will be known.
var runs = ends(nil)

// holds means that the caller holds the units itself, for a minute.
func holds(t *decide.Request) {
	t.HoldFor, t.Opaque = time.Minute, true
}

// next is a decide.Next.
type next func(*decide.Request) error

func (n next) Ready(t *decide.Request) error { return n(t) }

var (
	fitsNot  = next(func(t *decide.Request) error { return errors.Join(t.Err, errTight) })
	slowly   = next(func(t *decide.Request) error { time.Sleep(time.Second); return t.Err })
	crashing = next(func(*decide.Request) error { panic("a bug") })
)

// ask decides a request.
func ask(user string, options ...func(*decide.Request)) func(*fixture) string {
	return asks(from(user, options...))
}

// asks decides requests that arrive together. It says how many calls of the store they took, if they are
// several.
func asks(all ...decide.Request) func(*fixture) string {
	return func(f *fixture) string { return f.decide(f.Context(), time.Time{}, true, all) }
}

// asksNot decides requests without waiting for the answers of rules in shadow mode.
func asksNot(all ...decide.Request) func(*fixture) string {
	return func(f *fixture) string { return f.decide(f.Context(), time.Time{}, false, all) }
}

// leaves decides a request whose client has left.
func leaves(user string) func(*fixture) string {
	return func(f *fixture) string {
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		return f.decide(ctx, time.Time{}, true, []decide.Request{from(user)})
	}
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// simulate decides a request some time after noon, in a simulation.
func simulate(after time.Duration, all ...decide.Request) func(*fixture) string {
	return func(f *fixture) string { return f.decide(f.Context(), noon.Add(after), true, all) }
}

func (f *fixture) decide(ctx context.Context, at time.Time, shadows bool, of []decide.Request) (text string) {
	all := make([]decide.Request, len(of)) // those of the row stay as they are
	read := 0
	for i := range of {
		all[i] = decide.Request{In: of[i].In, Err: of[i].Err, MaxDelay: of[i].MaxDelay, HoldFor: of[i].HoldFor, Opaque: of[i].Opaque}
		if all[i].Opaque {
			all[i].Hold = stint.NewHoldID()
		}
		if s := of[i].Settlement; s != nil {
			all[i].Settlement = &decide.Settlement{Next: s.Next}
		}
		if all[i].In != nil {
			read++
		}
	}
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint("panic: ", p)
		}
	}()
	f.Decide(ctx, all, at, shadows)
	f.last = append(f.last, all...)
	if f.decided != read {
		f.Errorf("%d decisions were told of %d", f.decided, read)
	}
	answers := make([]string, len(all))
	for i := range all {
		answers[i] = f.say(&all[i], at.IsZero())
	}
	text = strings.Join(answers, " | ")
	if len(all) > 1 {
		text += fmt.Sprintf(" | calls: %d", f.store.Calls()-f.before)
	}
	return text
}

// latest is the request that was decided last.
func (f *fixture) latest() *decide.Request { return &f.last[len(f.last)-1] }
