package rules

import (
	"strings"

	bcp47 "golang.org/x/text/language"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/message"
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
	stillBannedText
	byHandText
	anyText // of message: for refusals without a text of their own
	messagePlaces
)

// text is in one language or several; the first is for clients that want none of them.
type text struct {
	in        []message.Template
	matcher   bcp47.Matcher // nil: there is only one
	languages []string      // of in; nil: not given
}

const longestLanguages = 1000

// Text returns the text for a client that d refuses; empty: use the server's own sentence. byHand means that
// d is a manual ban. languages is the client's Accept-Language; empty: it sent none.
//
// If a text has several languages, Text chooses the best for languages, or the first if none fits. Without a
// text for the outcome, it is the rule's message.
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
	if s := m.texts[stillBannedText]; s != nil && place == bannedText && stint.Internal(friend.Of{}).BanRan(d) {
		t = s
	}
	if t == nil {
		t = m.texts[anyText]
	}
	if t == nil {
		return ""
	}
	return m.fill(t.pick(languages), d)
}

func (t *text) pick(languages string) message.Template {
	if t.matcher == nil || languages == "" || len(languages) > longestLanguages {
		return t.in[0]
	}
	_, i := bcp47.MatchStrings(t.matcher, languages)
	return t.in[i]
}

// fill writes only numbers, waits and the file's limits: nothing of a request.
func (m *Messages) fill(t message.Template, d *stint.Decision) string {
	n := d.Violations
	if n == 0 && d.Outcome == stint.Banned && d.Penalty != nil {
		n = m.penalty.BanAfter // it led to the running ban
	}
	return t.Fill(&message.Values{
		Violations: n, WarnAfter: m.penalty.WarnAfter, BanAfter: m.penalty.BanAfter,
		RetryAfter: d.RetryAfter, BanLeft: d.BanLeft, Limit: func() string { return m.limitText(d) },
	})
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
