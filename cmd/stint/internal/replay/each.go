package replay

import (
	"time"

	"github.com/stintdev/stint/cmd/stint/internal/accesslog"
)

// Each is what became of one request.
type Each struct {
	File   string    `json:"file"`
	Line   int64     `json:"line"` // from 1
	At     time.Time `json:"at"`
	Client string    `json:"client,omitempty"` // an address or network, or who signed in
	Decided
	Against *Decided `json:"against,omitempty"`
}

// Decided is the outcome of a request, and the rule that refused it.
type Decided struct {
	Outcome string `json:"outcome"`
	Rule    string `json:"rule,omitempty"`
}

// Last is what became of e, which was added last. sources are those of its log.
func (r *Replay) Last(e *accesslog.Entry, sources []accesslog.Source) Each {
	last := Each{File: sources[e.File].Path, Line: e.Line, At: time.UnixMicro(e.At).UTC(), Decided: r.outcomes[0].decided()}
	if r.client.known() {
		last.Client = r.client.String()
	}
	if len(r.sides) == 2 {
		old := r.outcomes[1].decided()
		last.Against = &old
	}
	return last
}

func (o outcome) decided() Decided {
	d := Decided{Outcome: o.name}
	if o.rule != nil {
		d.Rule = o.rule.rule.Name
	}
	return d
}
