package replay

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stintdev/stint/internal/spelling"
)

// share is n of all in percent, with two digits that count. It is "0%" and "100%" only if that is exact.
func share(n, all int64) string {
	if n == 0 || all == 0 {
		return "0%"
	}
	p := 100 * float64(n) / float64(all)
	switch {
	case n == all:
		return "100%"
	case p < 0.01:
		return "under 0.01%"
	case p > 99:
		return strconv.FormatFloat(min(p, 99.99), 'f', 2, 64) + "%"
	case p >= 9.95:
		return strconv.FormatFloat(p, 'f', 0, 64) + "%"
	case p >= 0.995:
		return strconv.FormatFloat(p, 'f', 1, 64) + "%"
	}
	return strconv.FormatFloat(p, 'f', 2, 64) + "%"
}

// spread is the standard deviation of 1,000 requests that are told from a share of them.
func spread(share float64) int64 { return int64(math.Round(math.Sqrt(1000 * (1 - share) / share))) }

// Judgements draw lines at these shares.
const (
	manyKeys = 0.05 // so many refused keys are no few abusers
	fewKeys  = 0.01
	// fewestKeys are enough for a judgement.
	fewestKeys = 20
)

// judge says what the numbers of a rule mean.
func (r *Rule) judge() string {
	refuses := "refuses"
	if r.Mode == "shadow" {
		refuses = "would refuse"
	}
	switch keys := float64(r.RefusedKeys) / float64(max(r.Keys, 1)); {
	case r.Requests == 0:
		return "It applies to no request of this log."
	case r.Refused == 0:
		return fmt.Sprintf("It %s nothing: no key reaches a limit.", refuses)
	case r.Keys < fewestKeys:
		return fmt.Sprintf("It %s %s of only %s at least once: too few to judge by.", refuses, spelling.Grouped(r.RefusedKeys), spelling.SeveralGrouped(r.Keys, "key"))
	case keys >= manyKeys && len(r.Best) > 0:
		return fmt.Sprintf("It is probably too strict: it %s %s of the keys at least once, also of clients whose other requests all passed.", refuses, share(r.RefusedKeys, r.Keys))
	case keys >= manyKeys:
		return fmt.Sprintf("It is probably too strict, or many clients misbehave: it %s %s of the keys at least once.", refuses, share(r.RefusedKeys, r.Keys))
	case len(r.Best) > 0:
		return fmt.Sprintf("It %s few keys (%s), but some are of clients whose other requests all passed: look at those.", refuses, share(r.RefusedKeys, r.Keys))
	case keys < fewKeys:
		return fmt.Sprintf("It %s few keys (%s), and of no client whose other requests all passed.", refuses, share(r.RefusedKeys, r.Keys))
	default:
		return fmt.Sprintf("It %s %s of the keys, and of no client whose other requests all passed.", refuses, share(r.RefusedKeys, r.Keys))
	}
}

// judge says what the numbers of all rules mean.
func (p *Report) judge() string {
	var b strings.Builder
	switch {
	case p.Requests == 0:
		return "The log has no requests."
	case p.Rules.Refused == 0:
		b.WriteString("These rules refuse nothing of this log")
	default:
		fmt.Fprintf(&b, "These rules refuse %s of the requests, of %s of the clients", share(p.Rules.Refused, p.Requests), share(p.Rules.RefusedClients, p.Rules.Clients))
	}
	if p.Against != nil {
		fmt.Fprintf(&b, "; %s newly refused, and %s newly passed", spelling.Grouped(p.NewlyRefused), spelling.Grouped(p.NewlyPassed))
	}
	if out := p.Log.Late + p.Log.Unread; out > 0 {
		fmt.Fprintf(&b, "; %s left out", spelling.SeveralGrouped(out, "line"))
	}
	notReplayed := 0
	for _, n := range p.NotReplayed {
		if n.Rule != "" {
			notReplayed++
		}
	}
	if notReplayed > 0 {
		fmt.Fprintf(&b, "; %s not replayed", spelling.SeveralGrouped(notReplayed, "rule"))
	}
	return b.String() + "."
}

// notes are what the numbers do not know.
func (r *Replay) notes(p *Report) {
	add := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	if !r.sides[0].Trial.Rules().Enabled {
		add("The rules are switched off (enabled: false), and refuse nothing.")
	}
	if r.share > 0 {
		add("The log has %.6g%% of the requests: each is replayed about %.3g times at once, so numbers of requests are estimates, and 1,000 requests of a key are seen as some %s to %s. Keys and clients are those of the sample.",
			100*r.share, r.times, spelling.Grouped(1000-spread(r.share)), spelling.Grouped(1000+spread(r.share)))
	}
	if q := p.Repeats; q != nil {
		add("If each refused request is repeated after its Retry-After, at most %d times, %s of the log (%s) are refused at first; %s sent, and %s never pass.", mostRepeats,
			spelling.SeveralGrouped(q.Refused, "request"), share(q.Refused, p.Requests), spelling.SeveralGrouped(q.Sent, "repetition"), spelling.Grouped(q.Lost))
	} else if p.Rules.Refused > 0 {
		add("Refused clients are replayed as they came: they neither give up nor repeat; see --repeats.")
	}
	if r.peers > 0 {
		add("%s came from a trusted proxy, and the log has no other address: they count for the proxy.", spelling.SeveralGrouped(r.peers, "request"))
	}
	if p.Rules.Sampled {
		add("There are more than %s clients: shares of them are of a sample.", spelling.Grouped(mostKept))
	}
	if n := p.Rules.Outcomes[malformed]; n > 0 {
		add("%s would be answered with 400, before any rule: they are malformed, or servers read them in different ways.", spelling.SeveralGrouped(n, "request"))
	}
}
