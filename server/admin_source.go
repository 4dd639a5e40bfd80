package server

import (
	"net/http"
	"time"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
)

// json is nil for no order.
func (o *order) json() *adminapi.Order {
	if o == nil {
		return nil
	}
	return &adminapi.Order{At: o.at, Who: o.who, Reason: o.reason}
}

func (s *Server) source() adminapi.Source {
	now := s.state()
	return adminapi.Source{Source: now.source(), Version: now.set.Version, Number: now.number, Ordered: now.ordered.json()}
}

func (s *Server) showSource(*call) (int, any, error) { return http.StatusOK, s.source(), nil }

// setSource makes this instance take its file's rules though the fleet has rules, or
// the fleet's again. It asks no store, for it is wanted where that is away or holds
// rules that are wrong.
func (s *Server) setSource(c *call) (int, any, error) {
	var in adminapi.SourceRequest
	if err := c.read(&in); err != nil {
		return 0, nil, err
	}
	from, err := config.ParseRulesFrom(in.Source)
	if err != nil {
		return 0, nil, impossible("source", "%s", err)
	}
	if s.settings.RulesFrom != config.FromFleet {
		return 0, nil, &callError{status: http.StatusConflict, detail: "This instance takes its rules from its file in any case: it was not started with server: {rules: fleet}."}
	}
	before := s.source()
	s.live.mu.Lock()
	switch {
	case from == config.FromFile:
		s.live.ordered = &order{time.Now().UTC(), c.who.Name, in.Reason}
		s.live.take(s.live.file, 0)
		s.install()
	case s.live.ordered != nil:
		s.live.ordered = nil
		s.takeFleetRules(&s.live.rules.seen)
	}
	s.live.mu.Unlock()
	after := s.source()
	s.audit(c, "take rules of the "+from.String(), in.Reason, before, after, nil)
	return http.StatusOK, after, nil
}
