package server

import (
	"net/http"
	"time"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/control"
)

func (s *Server) source() adminapi.Source {
	now := s.control.Status()
	return adminapi.Source{Source: sourceOf(&now), Version: now.Set.Version, Number: now.Number, Ordered: (*adminapi.Order)(now.Order)}
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
	if from == config.FromFile {
		s.control.UseFile(control.Order{At: time.Now().UTC(), Who: c.who.Name, Reason: in.Reason})
	} else {
		s.control.UsePushed()
	}
	after := s.source()
	s.audit(c, "take rules of the "+from.String(), in.Reason, before, after, nil)
	return http.StatusOK, after, nil
}
