package watch

import (
	"context"

	"github.com/stintdev/stint/server/internal/alerts"
	"github.com/stintdev/stint/server/rules"
)

// usageAlerts are the alerts about keys of each enforced rule; nil: there are none.
func usageAlerts(set *rules.Set) map[*rules.Rule][]*rules.Alert {
	var all map[*rules.Rule][]*rules.Alert
	for i := range set.Alerts {
		a := &set.Alerts[i]
		if a.Usage == nil {
			continue
		}
		for _, r := range set.Rules {
			if r.Name != a.Usage.Rule || r.Mode != rules.Enforce {
				continue
			}
			if all == nil {
				all = map[*rules.Rule][]*rules.Alert{}
			}
			all[r] = append(all[r], a)
		}
	}
	return all
}

// usageWatcher checks whether a request brought keys above the usage that an alert names.
type usageWatcher struct {
	watchesNothing
	alerts *alerts.Alerts
}

func (w usageWatcher) decided(_ context.Context, e event) {
	if e.set.usage == nil || e.Err != nil {
		return
	}
	for i := range e.Each {
		for _, alert := range e.set.usage[e.Rules[i]] {
			w.alerts.Decided(alert, &e.Each[i])
		}
	}
}
