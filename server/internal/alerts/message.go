package alerts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// Message is one message to a webhook. In JSON it is the body of the kind json.
type Message struct {
	At    time.Time `json:"at"`
	From  string    `json:"from"`
	Items []Item    `json:"alerts"`
}

// Item is one alert of a Message.
type Item struct {
	Name     string            `json:"name"`
	State    string            `json:"state"` // "firing" or "resolved"
	Severity string            `json:"severity"`
	Labels   map[string]string `json:"labels,omitempty"`
	When     string            `json:"when,omitempty"` // empty: the rules no longer have it
	Text     string            `json:"message,omitempty"`
	// Value is the value of the comparison's left side; nil: not known.
	Value    *float64  `json:"value,omitempty"`
	Fired    time.Time `json:"fired_at"`
	Resolved time.Time `json:"resolved_at,omitzero"`
	// Keys are the keys of an alert about keys, and More is how many were left out.
	Keys []ItemKey `json:"keys,omitempty"`
	More int       `json:"more_keys,omitempty"`
}

// ItemKey is a key that uses much of a limit.
type ItemKey struct {
	Rule  string    `json:"rule"`
	Limit string    `json:"limit"`
	Key   rules.Key `json:"key"`   // as it may be shown
	Usage float64   `json:"usage"` // 0.8 is 80 %
	At    time.Time `json:"at"`
	// Until is the end of the period in which the key is reported once.
	Until time.Time `json:"until"`
}

func (i *Item) state() string {
	if i.Resolved.IsZero() {
		return isFiring
	}
	return "resolved"
}

// id is the same for a message that is sent again, so that receivers can recognize it.
func (m *Message) id(webhook string) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q", webhook)
	for _, i := range m.Items {
		_, _ = fmt.Fprintf(h, "%q %d %d", i.Name, i.Fired.UnixNano(), i.Resolved.UnixNano())
		for _, k := range i.Keys {
			_, _ = fmt.Fprintf(h, "%q %q %d", k.Limit, k.Key, k.At.UnixNano())
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// encode makes the body of a message.
func (w *Webhook) encode(m *Message) ([]byte, error) {
	switch w.Kind {
	case config.Slack:
		return json.Marshal(map[string]string{"text": m.slack(w.From)})
	case config.Alertmanager:
		return json.Marshal(m.alertmanager(w.From))
	}
	out := Message{m.At, w.From, nil}
	for _, i := range m.Items {
		i.State = i.state()
		out.Items = append(out.Items, i)
	}
	return json.Marshal(out)
}

const (
	// alertmanagerAgain is how often a firing alert is sent again, and alertmanagerEnds when it ends without
	// that: it survives two failed messages in a row.
	alertmanagerAgain = time.Minute
	alertmanagerEnds  = 4 * alertmanagerAgain
)

// postableAlert is an alert as Alertmanager's API v2 takes it.
type postableAlert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

func (m *Message) alertmanager(from string) []postableAlert {
	var all []postableAlert
	for i := range m.Items {
		item := &m.Items[i]
		one := func(more map[string]string, value string, starts, ends time.Time) {
			labels := map[string]string{"alertname": item.Name, "severity": item.Severity, "service": from}
			maps.Copy(labels, item.Labels)
			maps.Copy(labels, more)
			notes := map[string]string{"summary": item.summary()}
			if item.When != "" {
				notes["description"] = item.When
			}
			if value != "" {
				notes["value"] = value
			}
			all = append(all, postableAlert{labels, notes, starts, ends})
		}
		for _, k := range item.Keys {
			one(map[string]string{"rule": k.Rule, "limit": k.Limit, "key": keyText(k.Key)}, number(k.Usage), k.At, k.Until)
		}
		if len(item.Keys) > 0 {
			continue
		}
		ends, value := m.At.Add(alertmanagerEnds), ""
		if !item.Resolved.IsZero() {
			ends = item.Resolved
		}
		if item.Value != nil {
			value = number(*item.Value)
		}
		one(nil, value, item.Fired, ends)
	}
	return all
}

func (i *Item) summary() string {
	if i.Text != "" {
		return i.Text
	}
	return i.Name + ": " + i.When
}

const (
	mostSlackKeys = 20
	mostSlackKey  = 100 // bytes of a key
	mostSlackText = 30_000
)

// slack is a message as text for Slack.
func (m *Message) slack(from string) string {
	var b strings.Builder
	for n := range m.Items {
		i := &m.Items[n]
		if b.Len() > mostSlackText {
			b.WriteString("\nand " + spelling.Several(len(m.Items)-n, "more alert"))
			break
		}
		if n > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "*%s* %s (%s)", strings.ToUpper(i.state()), slackText(i.Name), slackText(i.Severity))
		if i.Text != "" {
			b.WriteString(": " + slackText(i.Text))
		}
		if i.When != "" {
			b.WriteString("\n" + slackCode(i.When, 500))
		}
		if i.Value != nil && i.Resolved.IsZero() {
			b.WriteString(", now " + number(*i.Value))
		}
		if len(i.Keys) == 0 {
			b.WriteString("\nsince " + i.Fired.UTC().Format(time.RFC3339))
		}
		if !i.Resolved.IsZero() {
			b.WriteString(" until " + i.Resolved.UTC().Format(time.RFC3339))
		}
		b.WriteString(i.slackKeys())
		b.WriteString(", " + slackText(from))
	}
	return b.String()
}

func (i *Item) slackKeys() string {
	var b strings.Builder
	for n, k := range i.Keys {
		if n == mostSlackKeys {
			break
		}
		fmt.Fprintf(&b, "\n%s has used %.0f %% of %s", slackCode(keyText(k.Key), mostSlackKey), k.Usage*100, slackText(k.Rule+": "+k.Limit))
	}
	if more := i.More + max(0, len(i.Keys)-mostSlackKeys); more > 0 {
		b.WriteString("\nand " + spelling.Several(more, "more key"))
	}
	return b.String()
}

// keyText is a key as text: the parts of a list with commas between them.
func keyText(k rules.Key) string {
	return plain(strings.ReplaceAll(strings.TrimSuffix(string(k), "\x00"), "\x00", ", "), 1000)
}

var slackEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// slackText escapes a text, so that it cannot mention people or link.
func slackText(text string) string { return slackEscapes.Replace(plain(text, 1000)) }

// slackCode is a text that Slack shows as it is.
func slackCode(text string, most int) string {
	return "`" + slackEscapes.Replace(strings.ReplaceAll(plain(text, most), "`", "'")) + "`"
}

// plain replaces unprintable characters, and cuts a text off after most bytes.
func plain(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, text)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
