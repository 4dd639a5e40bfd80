package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/stintdev/stint/server/config"
)

const statusAbout = `Shows how an instance is, which rules it runs, and what looks wrong.

    stint status

It exits with 1 where the store does not answer.
`

// statusAnswer is how an instance is.
type statusAnswer struct {
	Program string    `json:"program"`
	Started time.Time `json:"started"`
	Rules   struct {
		Source  string    `json:"source"`
		Version string    `json:"version"`
		Number  int64     `json:"number"`
		Count   int64     `json:"count"`
		Enabled bool      `json:"enabled"`
		Taken   time.Time `json:"taken"`
		Refused *struct {
			At    time.Time `json:"at"`
			Error string    `json:"error"`
		} `json:"refused"`
		Ordered *order `json:"ordered"`
	} `json:"rules"`
	Controls struct {
		Number     int64     `json:"number"`
		Source     string    `json:"source"`
		Read       time.Time `json:"read"`
		StateError string    `json:"state_error"`
		Problems   []struct {
			ID   string `json:"id"`
			Text string `json:"text"`
		} `json:"problems"`
		Pending []struct {
			At     time.Time `json:"at"`
			Who    string    `json:"who"`
			Action string    `json:"action"`
			Reason string    `json:"reason"`
		} `json:"pending"`
	} `json:"controls"`
	Store struct {
		Kind   string `json:"kind"`
		OK     bool   `json:"ok"`
		Shared bool   `json:"shared"`
		Error  string `json:"error"`

		Breaker   string `json:"breaker"`
		Hears     *bool  `json:"hears"`
		Instances int64  `json:"instances"`
		Decides   string `json:"decides"`
		Namespace string `json:"namespace"`
		// ClockAhead is in microseconds.
		ClockAhead int64 `json:"clock_ahead_us"`
	} `json:"store"`
	Memory struct {
		Bytes int64  `json:"bytes"`
		From  string `json:"from"`
		Sum   int64  `json:"sum"`
	} `json:"memory"`
	Findings []finding `json:"findings"`
}

// finding is something that works but hardly as meant.
type finding struct {
	Code  string `json:"code"`
	Where string `json:"where"`
	Text  string `json:"text"`
}

func status(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("status")
	a := adminFlags(f, errs)
	if _, err := parseMixed(f, args, statusAbout, out); err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	data, err := a.send(ctx, question{method: http.MethodGet, path: "/v1/status"})
	if err != nil {
		return err
	}
	answer, err := read[statusAnswer](data)
	if err == nil {
		err = show(a, out, data, tellStatus)
	}
	if err == nil && !answer.Store.OK {
		err = errQuiet
	}
	return err
}

func tellStatus(w io.Writer, s statusAnswer) {
	var lines facts
	lines.add("program", plain(s.Program))
	lines.add("started", instant(s.Started))
	lines.add("rules", s.rules())
	if !s.Rules.Enabled {
		lines.add("", "limiting is off: everything passes; see `stint switch`")
	}
	if o := s.Rules.Ordered; o != nil {
		lines.add("", o.words())
	}
	if r := s.Rules.Refused; r != nil {
		lines.add("refused", instant(r.At)+": "+r.Error)
	}
	lines.add("controls", s.controls())
	if s.Controls.StateError != "" {
		lines.add("", "the state for the next start cannot be kept in state_dir: "+s.Controls.StateError)
	}
	for _, p := range s.Controls.Problems {
		lines.add("", shown(p.ID)+" is without effect: "+p.Text)
	}
	for _, p := range s.Controls.Pending {
		lines.add("pending", list(instant(p.At)+" "+plain(p.Action)+" by "+shown(p.Who), plain(p.Reason))+": in force here alone until the store is back")
	}
	lines.add("store", s.store())
	lines.add("namespace", shown(s.Store.Namespace))
	if apart := time.Duration(s.Store.ClockAhead) * time.Microsecond; apart.Abs() >= clocksApart {
		lines.add("clock", fmt.Sprintf("%s AHEAD of the store's, by which bans and other changes end", apart.Round(time.Second)))
	}
	lines.add("decides", s.decides())
	if s.Store.Breaker != "" {
		lines.add("breaker", plain(s.Store.Breaker)+", "+several(s.Store.Instances, "instance"))
	}
	if m := s.Memory; m.Bytes > 0 { // of an instance that tells
		lines.add("memory", fmt.Sprintf("at most %s, for there are %s (%s)", config.ByteSize(m.Sum), config.ByteSize(m.Bytes), plain(m.From)))
	}
	if s.Store.Hears != nil && !*s.Store.Hears {
		lines.add("hears", "nothing of what other instances undo, so no refusal is remembered")
	}
	for _, f := range s.Findings {
		lines.add("finding", plain(f.Code)+" "+located(f.Where, f.Text))
	}
	lines.print(w)
}

func (s *statusAnswer) rules() string {
	source := plain(s.Rules.Source)
	switch s.Rules.Source {
	case "file":
		source = "of its file"
	case "fleet":
		source = fmt.Sprintf("of the fleet, number %d", s.Rules.Number)
	}
	return fmt.Sprintf("%s, version %s, %s, taken %s", several(s.Rules.Count, "rule"), shown(s.Rules.Version), source, instant(s.Rules.Taken))
}

// decides says who decides about requests now.
func (s *statusAnswer) decides() string {
	if s.Store.Decides != "on_store_error" {
		return "the " + plain(s.Store.Decides)
	}
	if s.Store.Instances > 1 {
		return fmt.Sprintf("each rule's on_store_error; local is one of %d shares of each limit", s.Store.Instances)
	}
	return "each rule's on_store_error; local is each limit whole, as no other instance is known of"
}

// clocksApart is how far the clocks of an instance and its store are apart where that is
// told.
const clocksApart = 5 * time.Second

// controls says which changes made at run time are in force.
func (s *statusAnswer) controls() string {
	text := fmt.Sprintf("version %d", s.Controls.Number)
	switch s.Controls.Source {
	case "state_dir":
		text += ", KEPT in state_dir, read from the store " + instant(s.Controls.Read) + ": the store was not read since the start"
	case "nowhere":
		text = "NOT READ since the start: bans, lists, switches and pushed rules of the fleet are not in force here"
	}
	return text
}

func (s *statusAnswer) store() string {
	text := shown(s.Store.Kind)
	if !s.Store.Shared {
		text += " of this instance alone"
	}
	if s.Store.OK {
		text += ", answers"
	} else {
		text += ", DOES NOT ANSWER"
	}
	if s.Store.Error != "" {
		text += ": " + s.Store.Error
	}
	return text
}
