package main

import (
	"flag"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/stintdev/stint/rules"
)

// entry is what the API says of any override, listed network or ban.
type entry struct {
	rules.Note
	Problem string `json:"problem"`
	pending
}

// pending tells, in the answer to a change, that it is in force at one instance alone,
// and why. Empty: it is everywhere within a second.
type pending struct {
	Pending string `json:"pending"`
}

func (p pending) tell(w io.Writer) {
	if p.Pending != "" {
		fmt.Fprintln(w, plain(p.Pending))
	}
}

// end is when it ends, in words.
func (e *entry) end() string {
	if e.Until.IsZero() {
		return "without end"
	}
	return "until " + instant(e.Until)
}

// hint tells how to end an entry that does not end by itself.
func (e *entry) hint(w io.Writer, command string) {
	if e.Until.IsZero() {
		fmt.Fprintf(w, "it has no end: `stint %s %s` ends it; --for 30m or --until gives one\n", command, shown(e.ID))
	}
	if e.Problem != "" {
		fmt.Fprintf(w, "it is without effect now: %s\n", plain(e.Problem))
	}
	e.tell(w)
}

// entryHeads are the columns that every entry has after its own.
var entryHeads = []string{"UNTIL", "AUTHOR", "AT", "REASON", "PROBLEM"}

func (e *entry) cells() []string {
	return []string{instant(e.Until), shown(e.Author), instant(e.At), plain(e.Reason), plain(e.Problem)}
}

// term is for how long something is added, and why.
type term struct {
	For    string `json:"for,omitempty"`
	Until  string `json:"until,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func (t *term) flags(f *flag.FlagSet) {
	f.StringVar(&t.For, "for", "", "how long it holds: a `DURATION` such as 30m or 7d")
	f.StringVar(&t.Until, "until", "", "when it ends: a `TIME` such as 2030-01-31T18:00:00Z")
	reasonFlag(f, &t.Reason)
}

func (t *term) check(f *flag.FlagSet) error {
	if t.For != "" && t.Until != "" {
		return wrong(f, "want one of --for and --until")
	}
	if t.Until == "" {
		return nil
	}
	if _, err := time.Parse(time.RFC3339, t.Until); err != nil {
		return wrong(f, "--until %q: want a time such as 2030-01-31T18:00:00Z, or with +02:00 in place of Z", t.Until)
	}
	return nil
}

func reasonFlag(f *flag.FlagSet, to *string) {
	f.StringVar(to, "reason", "", "`TEXT` that tells others why")
}

// removal is the path that removes an entry, and why.
func removal(path, id, reason string) string {
	path = within(path, id)
	if reason != "" {
		path += "?" + url.Values{"reason": {reason}}.Encode()
	}
	return path
}

// within is a path with one more segment.
func within(path, segment string) string { return path + "/" + url.PathEscape(segment) }
