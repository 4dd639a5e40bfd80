package rules

import (
	"slices"

	"github.com/stintdev/stint/internal/errorformat"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// refusal makes a reader of the format of refusals, of the file or of a rule.
func (p *parser) refusal(to **errorformat.Format) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) { p.errorFormat(n, to, true) }
}

// errors makes a reader of the format of all other answers. It has no status, because each answer has its
// own.
func (p *parser) errors(to **errorformat.Format) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) { p.errorFormat(n, to, false) }
}

func (p *parser) errorFormat(n *yamlnode.Node, to **errorformat.Format, refuses bool) {
	var parts errorformat.Parts
	before := p.Problems()
	fields := yamlnode.Fields{"headers": p.headers(&parts.Headers), "bodies": p.bodies(&parts.Bodies, refuses)}
	if refuses {
		fields["status"] = p.status(&parts.Status, errorformat.CheckStatus)
		fields["grpc"] = func(n *yamlnode.Node) {
			p.Mapping(n, yamlnode.Fields{
				"code":    yamlnode.Parsed(p.Reader, &parts.Code, errorformat.ReadCode),
				"message": p.grpcMessage(&parts.Message),
			})
		}
	}
	if p.Mapping(n, fields) == nil || p.Problems() > before {
		return
	}
	*to = errorformat.New(parts)
}

// status makes a reader of a status that check accepts.
func (p *parser) status(to *int, check func(int) error) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		status, before := int64(0), p.Problems()
		p.Int64(&status, 0, 999)(n)
		if p.Problems() > before {
			return
		}
		if err := check(int(status)); err != nil {
			p.Report(n, "%s", err)
		}
		*to = int(status)
	}
}

func (p *parser) headers(to *[]errorformat.Header) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if !p.few(n, 0, 2*errorformat.MaxHeaders, "names and values of headers") {
			return
		}
		p.Named(n, func(name, value *yamlnode.Node) {
			text, ok := p.textOf(value)
			if !ok {
				return
			}
			h, offset, err := errorformat.ReadHeader(name.Value, text)
			switch {
			case err != nil && h.Name == "":
				p.Report(name, "%s", err)
			case err != nil:
				p.ReportWithin(value, offset, "%s: %s", expr.Clip(name.Value), err)
			case slices.ContainsFunc(*to, func(other errorformat.Header) bool { return other.Name == h.Name }):
				p.Report(name, "the header %s is given twice", h.Name)
			default:
				*to = append(*to, h)
			}
		})
	}
}

func (p *parser) bodies(to *[]errorformat.Body, refuses bool) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if !p.few(n, 0, 2*errorformat.MaxBodies, "types and texts of bodies") {
			return
		}
		p.Named(n, func(name, value *yamlnode.Node) {
			at, status, before := value, 0, p.Problems()
			if refuses && value.Tag == "!!map" {
				at = nil
				p.Mapping(value, yamlnode.Fields{
					"text":   func(n *yamlnode.Node) { at = n },
					"status": p.status(&status, errorformat.CheckBodyStatus),
				})
				if at == nil && p.Problems() == before {
					p.Report(value, "the body has no text")
				}
			}
			text, ok := p.textOf(at)
			if !ok || p.Problems() > before {
				return
			}
			b, offset, err := errorformat.ReadBody(name.Value, text, status)
			switch {
			case err != nil && b.Type == "":
				p.Report(name, "%s", err)
			case err != nil:
				p.ReportWithin(at, offset, "%s: %s", expr.Clip(name.Value), err)
			default:
				*to = append(*to, b)
			}
		})
	}
}

func (p *parser) grpcMessage(to **errorformat.Text) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		text, ok := p.textOf(n)
		if !ok {
			return
		}
		t, offset, err := errorformat.ReadMessage(text)
		if err != nil {
			p.ReportWithin(n, offset, "message: %s", err)
			return
		}
		*to = t
	}
}

// textOf returns a text. false: n is not a text, which was reported (a nil n was reported before).
func (p *parser) textOf(n *yamlnode.Node) (text string, ok bool) {
	before := p.Problems()
	p.Text(&text)(n)
	return text, n != nil && p.Problems() == before
}

// linkRefusals gives each rule its refusal format, when all files are read: its own, completed by the format
// of all rules.
func (s *Set) linkRefusals() {
	s.Refusal = s.Refusal.Over(s.Errors)
	for _, r := range s.written() {
		r.Refusal = r.Refusal.Over(s.Refusal)
	}
}
