package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const statusAbout = `Shows how an instance is, which rules it runs, and what looks wrong.

    stint status
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
	} `json:"rules"`
	Controls struct {
		Number   int64 `json:"number"`
		Problems []struct {
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
		Instances int64  `json:"instances"`
	} `json:"store"`
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
	return exchange(ctx, a, out, question{method: http.MethodGet, path: "/v1/status"}, tellStatus)
}

func tellStatus(w io.Writer, s statusAnswer) {
	var lines facts
	lines.add("program", plain(s.Program))
	lines.add("started", instant(s.Started))
	lines.add("rules", s.rules())
	if !s.Rules.Enabled {
		lines.add("", "limiting is off: everything passes; see `stint switch`")
	}
	if r := s.Rules.Refused; r != nil {
		lines.add("refused", instant(r.At)+": "+plain(r.Error))
	}
	lines.add("controls", fmt.Sprintf("version %d", s.Controls.Number))
	for _, p := range s.Controls.Problems {
		lines.add("", shown(p.ID)+" is without effect: "+plain(p.Text))
	}
	for _, p := range s.Controls.Pending {
		lines.add("pending", list(instant(p.At)+" "+plain(p.Action)+" by "+shown(p.Who), plain(p.Reason))+": in force here alone until the store is back")
	}
	lines.add("store", s.store())
	if s.Store.Breaker != "" {
		lines.add("breaker", s.breaker())
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

func (s *statusAnswer) breaker() string {
	text := plain(s.Store.Breaker)
	if text != "closed" {
		text += ", on_store_error decides"
	}
	return text + ", " + several(s.Store.Instances, "instance")
}

func (s *statusAnswer) store() string {
	text := shown(s.Store.Kind)
	if s.Store.OK {
		text += ", answers"
	} else {
		text += ", DOES NOT ANSWER"
	}
	if !s.Store.Shared {
		text += ", of this instance alone"
	}
	if s.Store.Error != "" {
		text += ": " + plain(s.Store.Error)
	}
	return text
}
