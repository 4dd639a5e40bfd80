package replay

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/cmd/stint/internal/sample"
	"github.com/stintdev/stint/server/rules"
)

// Report is what a replay found.
type Report struct {
	// Log is what was read.
	Log Log `json:"log"`
	// From and To are the instants of the first and the last request.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Requests are those replayed. What each of the rules made of them is in Rules and Against.
	Requests int64 `json:"requests"`
	// Rules are the new rules, and Against those that they are compared with.
	Rules   Outcome  `json:"rules"`
	Against *Outcome `json:"against,omitempty"`
	// NewlyRefused and NewlyPassed are requests that pass under one of the two, and not under the other, be it
	// for a rule or because they are malformed.
	NewlyRefused int64 `json:"newly_refused"`
	NewlyPassed  int64 `json:"newly_passed"`
	// Repeats are what the new rules refuse if clients repeat what was refused; nil: nobody asked.
	Repeats *Repeats `json:"repeats,omitempty"`
	// ByRule are the rules that were replayed, in the file's order.
	ByRule []Rule `json:"by_rule"`
	// AgainstByRule are the same of the old rules.
	AgainstByRule []Rule `json:"against_by_rule,omitempty"`
	// NotReplayed are those that read what the log lacks.
	NotReplayed []NotReplayed `json:"not_replayed"`
	// Suggestions are of the rules that they were wished for.
	Suggestions []Suggestion `json:"suggestions,omitempty"`
	// Notes say what the numbers do not know.
	Notes []phrase.Phrase `json:"notes"`
	// Judgement is one sentence.
	Judgement phrase.Phrase `json:"judgement"`
	// Studied are the suggestions of all rules that were measured, wished for or not.
	Studied []Suggestion `json:"-"`
}

// Outcome is what rules made of all requests.
type Outcome struct {
	// File is the file of the rules, and Version their hash.
	File    string `json:"file"`
	Version string `json:"version"`
	// Refused are the requests that did not pass. Outcomes are all requests by what became of them.
	Refused  int64            `json:"refused"`
	Outcomes map[string]int64 `json:"outcomes"`
	// Clients are the addresses and users that sent requests, and RefusedClients those with at least one that
	// was refused. Both are estimates if Sampled, but not up to 1,000 refused ones.
	Clients        int64 `json:"clients"`
	RefusedClients int64 `json:"refused_clients"`
	Sampled        bool  `json:"sampled,omitempty"`
}

// Rule is what a rule made of the requests that it applies to. A rule in shadow mode refuses nothing; Refused is
// what it would have refused.
type Rule struct {
	Name   string   `json:"name"`
	Mode   string   `json:"mode"`
	Key    string   `json:"key"`
	Limits []string `json:"limits"`

	// Requests are those that it applied to. While a ban runs, the rule that bans answers alone.
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`
	Bans     int64 `json:"bans"` // that began
	// Keys are the keys that it counted, and RefusedKeys those with at least one refused request. Both are
	// estimates if Sampled, but not up to 1,000 refused ones.
	Keys        int64 `json:"keys"`
	RefusedKeys int64 `json:"refused_keys"`
	Sampled     bool  `json:"sampled,omitempty"`

	// NewlyRefused are requests that it refuses, and that pass under the old rules.
	NewlyRefused int64 `json:"newly_refused"`
	// NewlyPassed, of an old rule, are requests that it refuses, and that pass under the new rules.
	NewlyPassed int64 `json:"newly_passed,omitempty"`
	// MostRefused are the keys with most refused requests: at most 10.
	MostRefused []Key `json:"most_refused"`
	// Best are clients that it refuses, and whose other requests all passed, nine of ten with a status below 400:
	// at most 10, those with most of them first.
	Best []Client `json:"best_refused"`
	// Hours are the hours in which it refused something, in order. Hour and day are UTC.
	Hours []Hour `json:"hours"`
	// Week are all hours.
	Week Week `json:"-"`
	// Judgement is one sentence about its numbers.
	Judgement phrase.Phrase `json:"judgement"`
}

// Key is a key with refused requests.
type Key struct {
	Key      rules.Key `json:"key"`
	Refused  int64     `json:"refused"`
	Requests int64     `json:"requests,omitempty"` // 0: not known, and Refused is a lower bound
}

// Client is a client with refused requests, and Passed others.
type Client struct {
	Client   string    `json:"client"`
	Refused  int64     `json:"refused"`
	Passed   int64     `json:"passed"`
	SignedIn bool      `json:"signed_in"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
}

// Hour is an hour that begins at From.
type Hour struct {
	From     time.Time `json:"from"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"`
}

// NotReplayed is a rule, or an entry of a list, that reads what the log lacks.
type NotReplayed struct {
	Rule  string   `json:"rule,omitempty"`
	Entry string   `json:"entry,omitempty"`
	Reads []string `json:"reads"`
}

const mostShown = 10 // keys, or clients, of a rule

// Report is what was found, and log what was read. No request may be added after it. The error is one of Add.
func (r *Replay) Report(ctx context.Context, log Log) (*Report, error) {
	now := r.sides[0]
	p := &Report{
		Log:  log,
		From: time.UnixMicro(r.first).UTC(), To: time.UnixMicro(r.last).UTC(), Requests: r.requests,
		Rules: now.outcome(), NewlyRefused: r.newly.refused, NewlyPassed: r.newly.passed,
		ByRule: []Rule{}, NotReplayed: []NotReplayed{}, Notes: []phrase.Phrase{},
	}
	for _, t := range now.rules {
		rule := now.ruleReport(t)
		rule.NewlyRefused = t.newly
		p.ByRule = append(p.ByRule, rule)
	}
	for i, s := range r.sides {
		if r.requests > 0 { // else nothing is known of the log
			for _, l := range s.Lacks {
				p.lacks(l)
			}
		}
		if i == 1 {
			against := s.outcome()
			p.Against = &against
			for _, t := range s.rules {
				rule := s.ruleReport(t)
				rule.NewlyPassed = t.newly
				p.AgainstByRule = append(p.AgainstByRule, rule)
			}
		}
	}
	for i := range r.studies {
		s := r.studies[i].suggestion()
		p.Studied = append(p.Studied, s)
		if r.studies[i].wished {
			p.Suggestions = append(p.Suggestions, s)
		}
	}
	if r.repeats != nil {
		var err error
		if p.Repeats, err = r.repeats.end(ctx); err != nil {
			return nil, err
		}
	}
	p.Log.Share = r.share
	r.notes(p)
	p.Judgement = p.judge()
	return p, nil
}

// lacks adds a rule once, also if both rules have it.
func (p *Report) lacks(l rules.Lack) {
	n := NotReplayed{Entry: l.Entry.String(), Reads: l.Reads}
	if l.Rule != nil {
		n.Rule = l.Rule.Name
	}
	same := func(o NotReplayed) bool {
		return o.Rule == n.Rule && o.Entry == n.Entry && slices.Equal(o.Reads, n.Reads)
	}
	if !slices.ContainsFunc(p.NotReplayed, same) {
		p.NotReplayed = append(p.NotReplayed, n)
	}
}

func (s *Side) outcome() Outcome {
	o := Outcome{File: s.Name, Version: s.Trial.Rules().Version, Outcomes: map[string]int64{}, Sampled: s.clients.IsPart()}
	for i, n := range s.outcomes {
		if n > 0 {
			o.Outcomes[s.names[i]] += n
		}
	}
	o.Refused = s.refused
	o.Clients, o.RefusedClients = count(&s.clients, func(c *clientTally) bool { return c.refused > 0 })
	if n := len(s.hit); n <= mostRefusedKeys {
		o.RefusedClients = int64(n)
	}
	return o
}

func (s *Side) ruleReport(t *ruleTally) Rule {
	r := Rule{
		Name: t.rule.Name, Mode: t.rule.Mode.String(), Key: t.rule.Key, Limits: []string{},
		Requests: t.requests, Refused: t.refused, Bans: t.bans, Week: t.week(),
		Sampled: t.keys.IsPart(), Best: s.best(t), Hours: []Hour{},
	}
	for _, l := range t.rule.Limits {
		r.Limits = append(r.Limits, l.Terms())
	}
	r.Keys, r.RefusedKeys = count(&t.keys, func(k *keyTally) bool { return k.refused > 0 })
	if few := t.most.Top(mostRefusedKeys); few.Floor == 0 {
		r.RefusedKeys = int64(len(few.Counts))
	}
	r.MostRefused = t.mostRefused()
	for _, at := range slices.Sorted(maps.Keys(t.hours)) {
		if h := t.hours[at]; h.refused > 0 {
			r.Hours = append(r.Hours, Hour{time.UnixMicro(at * hourLong).UTC(), h.requests, h.refused})
		}
	}
	r.Judgement = r.judge()
	return r
}

// mostRefused are the keys with most refused requests. Of a key that the sample does not keep, only a bound is known:
// so many, or more.
func (t *ruleTally) mostRefused() []Key {
	all := []Key{}
	for _, c := range t.most.Top(mostRefusedKeys).Counts {
		k := Key{Key: rules.Key(c.Key), Refused: c.Count - c.Error}
		if kept := t.keys.Of[sample.Hash(c.Key)]; kept != nil {
			k.Refused, k.Requests = kept.refused, kept.requests
		}
		all = append(all, k)
	}
	slices.SortStableFunc(all, func(a, b Key) int { return cmp.Compare(b.Refused, a.Refused) })
	return all[:min(len(all), mostShown)]
}

// best are the clients that t refused, and that otherwise gave no reason to.
func (s *Side) best(t *ruleTally) []Client {
	all := []Client{}
	place := s.places[t.rule]
	for _, c := range s.clients.Of {
		at := slices.IndexFunc(c.byRule, func(b refusedBy) bool { return b.rule == place })
		if at < 0 {
			continue
		}
		b := c.byRule[at]
		refused := b.times
		others := c.requests - refused
		byOthers := c.refused - (refused - b.passed)
		if others == 0 || byOthers > 0 || (c.well-b.well)*10 < others*9 {
			continue
		}
		all = append(all, Client{
			Client: c.String(), Refused: refused, Passed: others, SignedIn: c.user != "",
			First: time.UnixMicro(c.first).UTC(), Last: time.UnixMicro(c.last).UTC(),
		})
	}
	slices.SortFunc(all, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.Passed, a.Passed), cmp.Compare(a.Client, b.Client))
	})
	return all[:min(len(all), mostShown)]
}
