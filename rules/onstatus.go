package rules

import (
	"slices"
	"time"

	"github.com/stintdev/stint"
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

// watch gives r, which counts responses and nothing else, something to ask, so that
// a running ban is seen. It is asked for nothing: a look leaves no trace in a store.
func (r *Rule) watch() {
	look, err := stint.NewLimit(stint.Spec{Name: r.Name, Algorithm: stint.FixedWindow, Amount: 1_000_000_000, Period: time.Second})
	if err != nil {
		return // for its name, which has been reported
	}
	r.Limits, r.Watches = []*stint.Limit{look}, true
}
