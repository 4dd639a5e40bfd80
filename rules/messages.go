package rules

import (
	"strconv"
	"strings"
	"time"

	bcp47 "golang.org/x/text/language"

	"github.com/stintdev/stint"
)

// Messages are the texts of a rule for clients that it refuses. A Messages never changes;
// nil has no text.
type Messages struct {
	limits  []*stint.Limit    // the rule's
	penalty stint.PenaltySpec // the rule's, if it has one
	texts   [messagePlaces]*text
}

// The places of texts in Messages.texts. If you add one, name it in messageFields.
const (
	limitedText = iota
	warnedText
	bannedText
	byHandText
	anyText // of message: for what has no text of its own
	messagePlaces
)

// text is in one language or several; the first is for clients that want none of them.
type text struct {
	in        []template
	matcher   bcp47.Matcher // nil: there is only one
	languages []string      // of in; nil: it does not say which it is in
}

type template []piece

// piece is what stands before a placeholder, and its name; empty after the last.
type piece struct{ before, name string }

const longestLanguages = 1000

// Text returns the text for a client that d refuses; empty: the server's own sentence.
// byHand means that d is a manual ban. languages is the client's Accept-Language; empty: it
// sent none.
//
// Of a text in several languages it is the one that fits languages best, and the first if
// none fits. If there is no text for the outcome, it is the rule's message.
func (m *Messages) Text(d *stint.Decision, byHand bool, languages string) string {
	if m == nil {
		return ""
	}
	place := anyText
	switch {
	case byHand:
		place = byHandText
	case d.Outcome == stint.Limited:
		place = limitedText
	case d.Outcome == stint.Warned:
		place = warnedText
	case d.Outcome == stint.Banned:
		place = bannedText
	}
	t := m.texts[place]
	if t == nil {
		t = m.texts[anyText]
	}
	if t == nil {
		return ""
	}
	return m.fill(t.pick(languages), d)
}

func (t *text) pick(languages string) template {
	if t.matcher == nil || languages == "" || len(languages) > longestLanguages {
		return t.in[0]
	}
	_, i := bcp47.MatchStrings(t.matcher, languages)
	return t.in[i]
}

// placeholders are what a text may name. If you add one, fill it in, check it in
// Rule.cannotFill and list it in doc.go.
var placeholders = [...]string{"violations", "warn_after", "ban_after", "retry_after", "ban_left", "limit"}

// fill writes only numbers, waits and the file's limits: nothing of a request.
func (m *Messages) fill(t template, d *stint.Decision) string {
	var b strings.Builder
	for _, p := range t {
		b.WriteString(p.before)
		switch p.name {
		case "violations":
			n := d.Violations
			if n == 0 && d.Outcome == stint.Banned && d.Penalty != nil {
				n = m.penalty.BanAfter // which led to the ban that runs
			}
			b.WriteString(strconv.FormatInt(n, 10))
		case "warn_after":
			b.WriteString(strconv.FormatInt(m.penalty.WarnAfter, 10))
		case "ban_after":
			b.WriteString(strconv.FormatInt(m.penalty.BanAfter, 10))
		case "retry_after":
			b.WriteString(waitText(d.RetryAfter))
		case "ban_left":
			b.WriteString(waitText(d.BanLeft))
		case "limit":
			b.WriteString(m.limitText(d))
		}
	}
	return b.String()
}

func (m *Messages) limitText(d *stint.Decision) string {
	if d.Limit != nil {
		return d.Limit.Terms()
	}
	var all []string
	for _, l := range m.limits {
		all = append(all, l.Terms())
	}
	return strings.Join(all, ", ")
}

// waitText is a wait in two units, rounded up: 45s, 12m 5s, 1d 4h. stint.Never is ∞.
func waitText(d time.Duration) (text string) {
	if d == stint.Never {
		return "∞"
	}
	// Each pair of units serves what is below the next larger one, once rounded up.
	for _, u := range [...]struct {
		small       time.Duration
		per         int64 // of the small ones in a large one
		name, large string
		below       time.Duration // 0: no end
	}{
		{time.Second, 60, "s", "m", time.Hour},
		{time.Minute, 60, "m", "h", 24 * time.Hour},
		{time.Hour, 24, "h", "d", 0},
	} {
		n := max(1, int64((d-1)/u.small)+1)
		if u.below > 0 && time.Duration(n) >= u.below/u.small {
			continue
		}
		var parts []string
		if n >= u.per {
			parts = append(parts, strconv.FormatInt(n/u.per, 10)+u.large)
		}
		if n%u.per > 0 {
			parts = append(parts, strconv.FormatInt(n%u.per, 10)+u.name)
		}
		text = strings.Join(parts, " ")
		break
	}
	return text
}
