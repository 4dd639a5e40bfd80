package server

import (
	"net/http"
	"time"
)

// sourceJSON is where this instance takes its rules from.
type sourceJSON struct {
	Source  string     `json:"source"`
	Version string     `json:"version"`
	Number  int64      `json:"number"`
	Ordered *orderJSON `json:"ordered,omitempty"`
}

// orderJSON is the order by which an instance of a fleet takes its file's rules.
type orderJSON struct {
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	Reason string    `json:"reason,omitempty"`
}

// json is nil for no order.
func (o *order) json() *orderJSON {
	if o == nil {
		return nil
	}
	return &orderJSON{o.at, o.who, o.reason}
}

func (s *Server) source() sourceJSON {
	now := s.state()
	return sourceJSON{now.source(), now.set.Version, now.number, now.ordered.json()}
}

func (s *Server) showSource(*call) (int, any, error) { return http.StatusOK, s.source(), nil }

// setSource makes this instance take its file's rules though the fleet has rules, or
// the fleet's again. It asks no store, for it is wanted where that is away or holds
// rules that are wrong.
func (s *Server) setSource(c *call) (int, any, error) {
	var text, reason string
	if err := c.fields(textField("source", &text), reasonField("reason", &reason)); err != nil {
		return 0, nil, err
	}
	from, err := ParseRulesFrom(text)
	if err != nil {
		return 0, nil, impossible("source", "%s", err)
	}
	if s.settings.RulesFrom != FromFleet {
		return 0, nil, &callError{status: http.StatusConflict, detail: "This instance takes its rules from its file in any case: it was not started with server: {rules: fleet}."}
	}
	before := s.source()
	s.live.mu.Lock()
	switch {
	case from == FromFile:
		s.live.ordered = &order{time.Now().UTC(), c.who.Name, reason}
		s.live.take(s.live.file, 0)
		s.install()
	case s.live.ordered != nil:
		s.live.ordered = nil
		s.takeFleetRules(&s.live.rules.seen)
	}
	s.live.mu.Unlock()
	after := s.source()
	s.audit(c, "take rules of the "+from.String(), reason, before, after, nil)
	return http.StatusOK, after, nil
}
