package replay

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/internal/spelling"
)

// Share is n of all in percent, with two digits that count. It is "0%" and "100%" only if that is exact.
func Share(n, all int64) phrase.Phrase {
	if p := 100 * float64(n) / float64(max(all, 1)); n > 0 && p < 0.01 {
		return phrase.Of("under %s", "0.01%")
	}
	return phrase.Plain(percent(n, all))
}

// percent is the share without words: one that is too low for it is 0.01%.
func percent(n, all int64) string {
	if n == 0 || all == 0 {
		return "0%"
	}
	p := max(100*float64(n)/float64(all), 0.01)
	digits := 2
	switch {
	case n == all:
		return "100%"
	case p > 99:
		p = min(p, 99.99)
	case p >= 9.95:
		digits = 0
	case p >= 0.995:
		digits = 1
	}
	return strconv.FormatFloat(p, 'f', digits, 64) + "%"
}

// spread is the standard deviation of 1,000 requests that are told from a share of them.
func spread(share float64) int64 { return int64(math.Round(math.Sqrt(1000 * (1 - share) / share))) }

// times is how often each request is replayed, with three digits that count.
func times(n float64) string {
	if n >= 100 {
		return spelling.Grouped(int64(math.Round(n)))
	}
	return fmt.Sprintf("%.3g", n)
}

// Judgements draw lines at these shares.
const (
	manyKeys = 0.05 // so many refused keys are no few abusers
	fewKeys  = 0.01
	// fewestKeys are enough for a judgement.
	fewestKeys = 20
)

// judge says what the numbers of a rule mean.
func (r *Rule) judge() phrase.Phrase {
	refuses := phrase.Of("refuses")
	if r.Mode == "shadow" {
		refuses = phrase.Of("would refuse")
	}
	refused := Share(r.RefusedKeys, r.Keys)
	switch keys := float64(r.RefusedKeys) / float64(max(r.Keys, 1)); {
	case r.Requests == 0:
		return phrase.Of("It applies to no request of this log.")
	case r.Refused == 0:
		return phrase.Of("It %s nothing: no key reaches a limit.", refuses)
	case r.Keys < fewestKeys:
		return phrase.Of("It %s %s of only %s at least once: too few to judge by.", refuses, r.RefusedKeys, phrase.Count(r.Keys, "key"))
	case keys >= manyKeys && len(r.Best) > 0:
		return phrase.Of("It is probably too strict: it %s %s of the keys at least once, also of clients whose other requests all passed.", refuses, refused)
	case keys >= manyKeys:
		return phrase.Of("It is probably too strict, or many clients misbehave: it %s %s of the keys at least once.", refuses, refused)
	case len(r.Best) > 0:
		return phrase.Of("It %s few keys (%s), but some are of clients whose other requests all passed: look at those.", refuses, refused)
	case keys < fewKeys:
		return phrase.Of("It %s few keys (%s), and of no client whose other requests all passed.", refuses, refused)
	default:
		return phrase.Of("It %s %s of the keys, and of no client whose other requests all passed.", refuses, refused)
	}
}

// judge says what the numbers of all rules mean.
func (p *Report) judge() phrase.Phrase {
	var parts []phrase.Phrase
	add := func(part phrase.Phrase) { parts = append(parts, part) }
	notReplayed := 0
	for _, n := range p.NotReplayed {
		if n.Rule != "" {
			notReplayed++
		}
	}
	switch {
	case p.Requests == 0:
		return phrase.Of("The log has no requests.")
	case p.Rules.Refused == 0 && notReplayed > 0 && len(p.ByRule) == 0:
		add(phrase.Of("No rule could be replayed"))
	case p.Rules.Refused == 0:
		add(phrase.Of("These rules refuse nothing of this log"))
	default:
		add(phrase.Of("These rules refuse %s of the requests, of %s of the clients", Share(p.Rules.Refused, p.Requests), Share(p.Rules.RefusedClients, p.Rules.Clients)))
	}
	if p.Against != nil {
		add(phrase.Of("%s newly refused, and %s newly passed", p.NewlyRefused, p.NewlyPassed))
	}
	if out := p.Log.Late + p.Log.Unread; out > 0 {
		add(phrase.Of("%s left out", phrase.Count(out, "line")))
	}
	if notReplayed > 0 {
		add(phrase.Of("%s not replayed", phrase.Count(notReplayed, "rule")))
	}
	return phrase.Of("%s.", phrase.Join("; ", parts...))
}

// notes are what the numbers do not know.
func (r *Replay) notes(p *Report) {
	add := func(note phrase.Phrase) { p.Notes = append(p.Notes, note) }
	if !r.sides[0].Trial.Rules().Enabled {
		add(phrase.Of("The rules are switched off (enabled: false), and refuse nothing."))
	}
	if r.share > 0 {
		add(phrase.Of("The log has %s of the requests: each is replayed about %s times at once, so numbers of requests are estimates, and 1,000 requests of a key are seen as some %s to %s, fewer less exactly. So limits near to what keys use at most refuse more here than in truth, and more of the keys. Keys and clients are those of the sample: the busier ones.",
			fmt.Sprintf("%.6g%%", 100*r.share), times(r.times), 1000-spread(r.share), 1000+spread(r.share)))
	}
	if q := p.Repeats; q != nil {
		add(phrase.Of("If each refused request is repeated after its Retry-After, at most %s times, %s of the log (%s) are refused at first; %s sent, and %s never pass.", mostRepeats,
			phrase.Count(q.Refused, "request"), Share(q.Refused, p.Requests), phrase.Count(q.Sent, "repetition"), q.Lost))
	} else if p.Rules.Refused > 0 {
		add(phrase.Of("Refused clients are replayed as they came: they neither give up nor repeat; see --repeats."))
	}
	if len(r.sides) == 2 && !sameLacks(r.sides[0], r.sides[1]) {
		add(phrase.Of("Some rules are replayed on one side only, so some requests are newly refused or passed because of that."))
	}
	if r.peers > 0 {
		add(phrase.Of("%s came from a trusted proxy, and the log has no other address: they count for the proxy.", phrase.Count(r.peers, "request")))
	}
	if p.Rules.Sampled {
		add(phrase.Of("There are more than %s clients: shares of them are of a sample.", mostKept))
	}
	if n := p.Rules.Outcomes[malformed]; n > 0 {
		add(phrase.Of("%s would be answered with 400, before any rule: they are malformed, or servers read them in different ways.", phrase.Count(n, "request")))
	}
}

// sameLacks reports whether the same rules and entries of lists are missing on both sides, by their names.
func sameLacks(a, b *Side) bool {
	names := func(s *Side) (all []string) {
		for _, l := range s.Lacks {
			name := l.Entry.String()
			if l.Rule != nil {
				name = l.Rule.Name
			}
			all = append(all, name)
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(names(a), names(b))
}

// Sentence says what is not replayed, and why.
func (n NotReplayed) Sentence() phrase.Phrase {
	what := phrase.Of("rule %s", Clip(n.Rule, width))
	if n.Rule == "" {
		what = phrase.Plain(Clip(n.Entry, width))
	}
	var reads []phrase.Phrase
	for _, r := range n.Reads {
		reads = append(reads, sayRead(r))
	}
	return phrase.Of("Not replayed: %s reads %s, which this log lacks.", what, phrase.Join(", ", reads...))
}

// sayRead is one of NotReplayed.Reads: those of rules.Lack that are not parts of expressions have words.
func sayRead(read string) phrase.Phrase {
	if limit, ok := strings.CutPrefix(read, "every request, for "); ok {
		return phrase.Of("every request, for %s", limit)
	}
	if name, ok := strings.CutPrefix(read, "whether the rule "); ok {
		return phrase.Of("whether the rule %s applies", strings.TrimSuffix(name, " applies"))
	}
	switch read {
	case "every response":
		return phrase.Of("every response")
	case "every refused request, for its bans":
		return phrase.Of("every refused request, for its bans")
	case "what a request holds until its end":
		return phrase.Of("what a request holds until its end")
	}
	return phrase.Plain(read)
}

// About is a number of requests, which is an estimate if the log is a sample.
func (l *Log) About(n phrase.Phrase) phrase.Phrase {
	if l.Share > 0 {
		return phrase.Of("about %s", n)
	}
	return n
}

// SayUnread says how many lines could not be read.
func (l *Log) SayUnread() phrase.Phrase {
	return phrase.Of("%s could not be read:", phrase.Count(l.Unread, "line"))
}

// SayLate says how many requests came too late.
func (l *Log) SayLate() phrase.Phrase {
	return phrase.Of("%s came too late to be replayed in order: see --disorder", phrase.Count(l.Late, "request"))
}

// SayInterrupted says that the end of the log was not read.
func (l *Log) SayInterrupted() phrase.Phrase {
	return phrase.Of("Interrupted: this is what was read until then.")
}
