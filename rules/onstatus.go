package rules

import (
	"slices"

	"github.com/stintdev/stint/internal/yamlnode"
)

// maxStatuses is how many statuses a penalty may name.
const maxStatuses = 50

// statuses makes a reader of the statuses of responses that are violations.
func (p *parser) statuses(to *[]int) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if !p.few(n, 0, maxStatuses, "statuses") {
			return
		}
		isList := p.Each(n, func(n *yamlnode.Node) {
			var status int64
			p.Int64(&status, 100, 599)(n)
			if status > 0 && slices.Contains(*to, int(status)) {
				p.Report(n, "status %d is given twice", status)
			}
			*to = append(*to, int(status))
		})
		if isList && len(n.Content) == 0 {
			p.Report(n, "on_status has no statuses: such as on_status: [401, 404]")
		}
	}
}
