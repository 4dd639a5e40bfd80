package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// story is what happens to one instance and to its store, step after step.
type story struct {
	t         *testing.T
	limits    map[string]*stint.Limit
	order     []*stint.Limit
	penalties map[string]*stint.Penalty
	store     *distant
	top       stint.Store
	fleet     *fleet.Store // nil: top is one layer
	fallback  *fleet.Fallback
	looks     func(*stint.Request, []stint.Decision) error
	patience  time.Duration
	running   map[string]*runs
	keys      map[string]bool
	out       strings.Builder
}

// tell tells a story, and returns what came of each step.
func tell(t *testing.T, given string) (told string) {
	synctest.Test(t, func(t *testing.T) {
		fleet.JitterNothing(t)
		s := &story{t: t, limits: map[string]*stint.Limit{}, penalties: map[string]*stint.Penalty{}, store: newDistant(), patience: patience, running: map[string]*runs{}, keys: map[string]bool{}}
		for line := range strings.Lines(given) {
			s.step(strings.TrimSpace(line))
		}
		s.end()
		told = s.out.String()
	})
	return told
}

func (s *story) step(line string) {
	s.t.Helper()
	if line == "" || strings.HasPrefix(line, "#") {
		return
	}
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "limit", "penalty", "over":
		s.set(verb, rest)
		return
	case "draw":
		s.draw(rest)
		return
	}
	began := time.Now()
	result := s.do(verb, rest)
	took := time.Since(began)
	synctest.Wait()
	if s.fallback != nil {
		if noted, real := fleet.Owed(s.fallback); noted != real {
			s.t.Errorf("%s: %d bytes of debts are noted, and there are %d", line, noted, real)
		}
	}
	fmt.Fprintf(&s.out, "%s", line)
	if took > 0 && verb != "wait" && verb != "burst" {
		fmt.Fprintf(&s.out, "   (%s)", took)
	}
	if result != "" {
		fmt.Fprintf(&s.out, "\n    %s", result)
	}
	s.out.WriteString(s.store.heard() + "\n")
}

// set says what a story is about.
func (s *story) set(what, rest string) {
	name, rest, _ := strings.Cut(rest, " ")
	switch what {
	case "limit":
		spec := stint.MustLimit(rest).Spec()
		spec.Name = name
		l, err := stint.NewLimit(spec)
		s.must(err)
		if i := slices.Index(s.order, s.limits[name]); i >= 0 { // the rules are read again
			s.order[i] = l
		} else {
			s.order = append(s.order, l)
		}
		s.limits[name] = l
	case "penalty":
		spec := stint.PenaltySpec{Name: name}
		var ban, forget, longest string
		_, err := fmt.Sscanf(rest, "warn %d ban %d for %s forget %s growth %d most %s", &spec.WarnAfter, &spec.BanAfter, &ban, &forget, &spec.Growth, &longest)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			s.must(err)
		}
		spec.BanFor, spec.ForgetAfter = s.duration(ban), s.duration(forget)
		if longest != "" {
			spec.MaxBan = s.duration(longest)
		}
		s.penalties[name] = penalty(s.t, spec)
	case "over":
		var instances, owed int
		if rest != "" {
			_, err := fmt.Sscanf(rest, "%d instances, %d owed", &instances, &owed)
			s.must(err)
		}
		s.layers(name, instances, owed)
	}
}

// layers puts layers before the store.
func (s *story) layers(which string, instances, owed int) {
	breaker := fleet.Breaker{Changed: func(to fleet.BreakerState, _ error) {
		s.store.note("the breaker is %s", to)
	}}
	called := func(_ time.Duration, err error) {
		if err != nil {
			s.store.note("failed: %s", err)
		}
	}
	switch which {
	case "fallback":
		s.fallback = &fleet.Fallback{Store: s.store, Instances: instances, MaxOwed: owed, Breaker: breaker, Called: called}
		s.top, s.looks = s.fallback, s.fallback.Look
	case "leases":
		l := &fleet.Leases{Store: s.store, Live: func() int64 { return int64(max(1, instances)) }}
		s.top = l
		s.t.Cleanup(l.Close)
	case "denials":
		s.top = remembering(s.t, s.store, 0)
	case "all":
		s.fleet = fleet.New(s.store, fleet.Options{Instances: max(1, instances), MaxOwed: owed, Breaker: breaker, Called: called})
		s.fallback, _ = stint.As[*fleet.Fallback](s.fleet)
		s.top, s.looks = s.fleet, s.fleet.Look
		s.t.Cleanup(s.fleet.Close)
		synctest.Wait()
	default:
		s.t.Fatalf("no layers are called %q", which)
	}
}

func (s *story) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) duration(text string) time.Duration {
	s.t.Helper()
	d, err := time.ParseDuration(text)
	s.must(err)
	return d
}

func (s *story) number(text string) int64 {
	s.t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	s.must(err)
	return n
}

// patience is that of who takes a step, unless the story says another.
const patience = 10 * time.Second

// do takes one step, and returns its outcome.
func (s *story) do(verb, rest string) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), s.patience)
	defer cancel()
	switch verb {
	case "patience":
		s.patience = s.duration(rest)
		return ""
	case "wait":
		time.Sleep(s.duration(rest))
		return ""
	case "store":
		s.store.fail(rest)
		return ""
	case "deaf", "hearing":
		s.store.connected(verb == "hearing")
		return ""
	case "close":
		s.close()
		return ""
	case "take", "look", "violate":
		r := s.request(rest)
		each := make([]stint.Decision, len(r.Asks))
		var d stint.Decision
		var err error
		switch verb {
		case "take":
			d, err = (&stint.Limiter{Store: s.top}).Take(ctx, &r, each)
		case "violate":
			d, err = stint.Violate(ctx, s.top, &r)
			return shownDecision(&d, err)
		default:
			err = s.looks(&r, each)
			d = stint.Strictest(each)
		}
		return s.answer(&r, &d, each, err)
	case "batch":
		return s.batch(ctx, rest)
	case "list": // of so many equal requests
		n, request, _ := strings.Cut(rest, " ")
		return s.batch(ctx, strings.TrimSuffix(strings.Repeat(request+" ; ", int(s.number(n))), " ; "))
	case "burst":
		return s.burst(ctx, rest)
	case "other": // another instance takes
		r := s.request(rest)
		d, err := s.store.Store.Take(ctx, &r, nil)
		return shownDecision(&d, err)
	case "theirs": // another instance resets, and the store tells
		r := s.request(rest)
		_ = s.store.Store.(*stint.Memory).Reset(ctx, &r)
		s.store.notify(&r)
		return ""
	case "refund", "reset", "forget":
		r := s.request(rest)
		var err error
		switch verb {
		case "refund":
			err = stint.Refund(ctx, s.top, &r)
		case "reset":
			err = stint.Reset(ctx, s.top, &r)
		default:
			s.forget(&r)
		}
		if err != nil {
			return "error: " + err.Error()
		}
		return ""
	}
	return s.hold(ctx, verb, strings.Fields(rest))
}

func (s *story) close() {
	switch top := s.top.(type) {
	case interface{ Close() }:
		top.Close()
	case interface{ Close() error }:
		s.must(top.Close())
	}
}

func (s *story) forget(r *stint.Request) {
	if f, ok := s.top.(interface{ Forget(*stint.Request) }); ok {
		f.Forget(r)
		return
	}
	for _, a := range r.Asks {
		s.top.(*fleet.Denials).Forget(a.Key)
	}
}

func (s *story) answer(r *stint.Request, d *stint.Decision, each []stint.Decision, err error) string {
	text := shownDecision(d, err)
	if err == nil && (len(r.Asks) > 1 || each[0] != *d) {
		for i := range each {
			text += "\n    - " + shownDecision(&each[i], nil)
		}
	}
	return text
}

// batch is of requests with a semicolon between.
func (s *story) batch(ctx context.Context, rest string) string {
	var rs []stint.Request
	for text := range strings.SplitSeq(rest, " ; ") {
		rs = append(rs, s.request(text))
	}
	answers := make([]stint.Answer, len(rs))
	for i := range answers {
		answers[i].Each = make([]stint.Decision, len(rs[i].Asks))
	}
	(&stint.Limiter{Store: s.top}).TakeBatch(ctx, rs, answers)
	var all []string
	for i := range answers {
		all = append(all, s.answer(&rs[i], &answers[i].Decision, answers[i].Each, answers[i].Err))
	}
	if len(all) > 3 {
		all = []string{all[0], fmt.Sprintf("... %d more", len(all)-2), all[len(all)-1]}
	}
	return strings.Join(all, "\n    ")
}

// burst is "20 every 1ms" and a request. What comes of it is told in runs.
func (s *story) burst(ctx context.Context, rest string) string {
	var n int
	var every string
	_, err := fmt.Sscanf(rest, "%d every %s", &n, &every)
	s.must(err)
	r := s.request(strings.Join(strings.Fields(rest)[3:], " "))
	var told []string
	var was string
	run, first := 0, ""
	flush := func(last string) {
		if run > 0 {
			told = append(told, fmt.Sprintf("%d times %s; last %s", run, first, last))
		}
	}
	last := ""
	for range n {
		d, err := (&stint.Limiter{Store: s.top}).Take(ctx, &r, nil)
		now := fmt.Sprint(d.Outcome, d.By, d.Remembered, err)
		if now != was {
			flush(last)
			run, first, was = 0, shownDecision(&d, err), now
		}
		run++
		last = shownDecision(&d, err)
		time.Sleep(s.duration(every))
	}
	flush(last)
	return strings.Join(told, "\n    ")
}

// hold is "take N of H" and so on: see drawHold.
func (s *story) hold(ctx context.Context, verb string, words []string) string {
	actions := map[string]stint.HoldAction{"settle": stint.HoldSettle, "renew": stint.HoldRenew, "release": stint.HoldRelease, "charge": stint.HoldCharge}
	action, ok := actions[verb]
	if !ok {
		s.t.Fatalf("no step is called %q", verb)
	}
	var calls []stint.HoldCall
	if action == stint.HoldCharge { // charge k limit 3
		s.keys[words[0]] = true
		calls = []stint.HoldCall{{Action: action, Key: words[0], Limit: s.limits[words[1]], Cost: s.number(words[2])}}
	} else { // settle name 3
		h := s.running[words[0]]
		if h == nil {
			s.t.Fatalf("no hold is called %q", words[0])
		}
		if h.cost = 0; len(words) > 1 {
			h.cost = s.number(words[1])
		}
		calls = h.calls(action)
	}
	stint.Holds(ctx, s.top, time.Time{}, calls)
	var all []string
	for i := range calls {
		c := &calls[i]
		text := fmt.Sprintf("found %t, charged %d: %d left, %d held, reset %s", c.Found, c.Charged, c.Remaining, c.Held, c.ResetAfter)
		if c.Err != nil {
			text = "error: " + c.Err.Error()
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n    ")
}

// end tells what the store holds at last.
func (s *story) end() {
	s.store.fail("here")
	s.close()
	time.Sleep(10 * time.Millisecond) // until all have heard of it
	s.store.heard()
	keys := make([]string, 0, len(s.keys))
	for key := range s.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		for _, l := range s.order {
			r := stint.Request{Asks: []stint.Ask{{Key: key, Limit: l, Peek: true}}}
			d, err := s.store.Store.Take(s.t.Context(), &r, nil)
			s.must(err)
			if d.Remaining < l.Capacity() || d.Held > 0 {
				fmt.Fprintf(&s.out, "in the end %s\n", shownDecision(&d, nil))
			}
		}
	}
}

// request reads "key limit*cost~delay+penalty!policy@source, key limit holding name for 2s within 5ms".
func (s *story) request(text string) (r stint.Request) {
	text, within, ok := strings.Cut(text, " within ")
	if ok {
		r.Deadline = s.duration(within)
	}
	text, holding, _ := strings.Cut(text, " holding ")
	for ask := range strings.SplitSeq(text, ", ") {
		r.Asks = append(r.Asks, s.ask(ask))
	}
	if holding != "" {
		name, span, ok := strings.Cut(holding, " for ")
		if ok {
			r.HoldFor = s.duration(span)
		}
		r.Hold = stint.NewHoldID()
		s.running[name] = &runs{id: r.Hold, asks: r.Asks, by: make([]stint.Source, len(r.Asks)), span: r.HoldFor}
	}
	return r
}

// ask reads an ask as shownAsk writes it.
func (s *story) ask(text string) (a stint.Ask) {
	key, rest, _ := strings.Cut(text, " ")
	a = stint.Ask{Key: key, Cost: 1}
	s.keys[key] = true
	for rest != "" {
		end := 1 + strings.IndexAny(rest[1:]+"!", "*~+!@")
		word := rest[1:end]
		switch rest[0] {
		case '*':
			if a.Cost = s.number(word); a.Cost == 0 {
				a.Peek = true
			}
		case '~':
			a.MaxDelay = s.duration(word)
		case '+':
			a.Penalty = s.penalties[word]
			if a.Penalty == nil {
				s.t.Fatalf("no penalty is called %q", word)
			}
		case '!':
			a.OnError = map[string]stint.OnError{"allow": stint.OnErrorAllow, "deny": stint.OnErrorDeny}[word]
		case '@':
			a.By = map[string]stint.Source{"local": stint.ByLocal, "lease": stint.ByLease, "policy": stint.ByPolicy}[word]
		default:
			if a.Limit = s.limits[rest[:end]]; a.Limit == nil {
				s.t.Fatalf("no limit is called %q", rest[:end])
			}
		}
		rest = rest[end:]
	}
	if a.Limit == nil {
		a.Cost = 0
	}
	return a
}
