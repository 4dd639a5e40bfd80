package rules

import (
	"slices"
	"strings"
	"unicode"

	bcp47 "golang.org/x/text/language"

	"github.com/stintdev/stint/internal/message"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// messageFields name the texts of a rule's messages, by their places.
var messageFields = [...]string{limitedText: "limited", warnedText: "warned", bannedText: "banned", stillBannedText: "still_banned", byHandText: "banned_by_hand", anyText: "message"}

const (
	maxMessage   = 1024
	maxLanguages = 50
)

// messages reads message and messages of r; either may be nil. r's limits and penalty must be known.
func (p *parser) messages(one, several *yamlnode.Node, r *Rule) {
	if one == nil && several == nil {
		return
	}
	m := &Messages{limits: r.Limits}
	if r.Penalty != nil {
		m.penalty = r.Penalty.Spec()
	}
	nodes := make([]*yamlnode.Node, messagePlaces)
	if one != nil {
		nodes[anyText] = one
		m.texts[anyText] = p.text(one, anyText, r)
	}
	if several != nil {
		fields := yamlnode.Fields{}
		for place, name := range messageFields[:anyText] {
			fields[name] = func(n *yamlnode.Node) {
				if why := r.neverTells(place); why != "" {
					p.Report(n, "%s: this text is never used: %s", name, why)
					return
				}
				nodes[place] = n
				m.texts[place] = p.text(n, place, r)
			}
		}
		p.Mapping(several, fields)
	}
	r.Messages = m
	p.findLanguages(r, nodes)
}

// neverTells says why a rule never refuses in the way that a text is for; empty: it may.
func (r *Rule) neverTells(place int) string {
	warns, bans := r.Penalty != nil && r.Penalty.Spec().WarnAfter > 0, r.Penalty != nil && r.Penalty.Spec().BanAfter > 0
	switch {
	case (place == bannedText || place == stillBannedText) && !bans:
		return "the rule has no penalty with ban_after"
	case (place == limitedText || place == warnedText) && r.watches:
		return "a rule without limits refuses only during a ban"
	case place == warnedText && !warns:
		return "the rule has no penalty with warn_after"
	}
	return ""
}

func (p *parser) text(n *yamlnode.Node, place int, r *Rule) *text {
	if len(n.Content) == 0 || n.Tag == "!!seq" {
		return &text{in: []message.Template{p.template(n, place, r)}}
	}
	if len(n.Content) > 2*maxLanguages {
		p.Report(n, "%d languages: at most %d", len(n.Content)/2, maxLanguages)
		return nil
	}
	t := &text{}
	var tags []bcp47.Tag
	p.Named(n, func(name, value *yamlnode.Node) {
		if slices.Contains(message.Placeholders[:], name.Value) {
			p.Report(n, "quote a text that begins with a brace: \"{%s} …\"", name.Value)
			return
		}
		tag, err := bcp47.Parse(name.Value)
		switch {
		case err != nil || tag == bcp47.Und:
			p.Report(name, "%q is not a language: want a tag such as en, de-CH or zh-Hant", expr.Clip(name.Value))
			return
		case slices.Contains(tags, tag):
			p.Report(name, "%q is the same language as one before", name.Value)
			return
		}
		tags = append(tags, tag)
		t.languages = append(t.languages, tag.String())
		t.in = append(t.in, p.template(value, place, r))
	})
	if len(tags) > 1 {
		t.matcher = bcp47.NewMatcher(tags)
	}
	return t
}

func (p *parser) template(n *yamlnode.Node, place int, r *Rule) message.Template {
	var text string
	before := p.Problems()
	p.Text(&text)(n)
	if p.Problems() > before {
		return message.Template{}
	}
	if text == "" || len(text) > maxMessage || strings.ContainsFunc(text, unicode.IsControl) {
		p.Report(n, "%s: must be one line of 1 to %d bytes", messageFields[place], maxMessage)
		return message.Template{}
	}
	t, offset, err := message.Parse(text)
	if err != nil {
		p.ReportWithin(n, offset, "%s: %s", messageFields[place], err)
		return message.Template{}
	}
	for _, name := range t.Names() {
		if why := r.cannotFill(name, place); why != "" {
			p.ReportWithin(n, len([]rune(text[:strings.Index(text, "{"+name+"}")])), "%s: {%s}: %s", messageFields[place], name, why)
		}
	}
	return t
}

// cannotFill says why the text at a place cannot have this placeholder; empty: it can.
func (r *Rule) cannotFill(name string, place int) string {
	byViolations := name == "violations" || name == "warn_after" || name == "ban_after"
	switch {
	case byViolations && r.Penalty == nil:
		return "the rule has no penalty"
	case byViolations && place == byHandText:
		return "a ban by hand has no violations"
	case name == "warn_after" && r.Penalty.Spec().WarnAfter == 0:
		return "the rule's penalty has no warn_after"
	case name == "ban_after" && r.Penalty.Spec().BanAfter == 0:
		return "the rule's penalty has no ban_after"
	case name == "ban_left" && place != bannedText && place != stillBannedText && place != byHandText:
		return "only banned, still_banned and banned_by_hand have it"
	case name == "limit" && r.watches:
		return "the rule has no limits"
	}
	return ""
}
