package server

import (
	"cmp"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/alerts"
)

// newAlerts returns the evaluator of the rules' alerts.
func newAlerts(s *Server) *alerts.Alerts {
	o := alerts.Options{
		ID: s.id, Reports: s.reports, Totals: s.live.Totals, Rules: s.Rules,
		Silences: s.control.Silences, Now: s.control.Now, ShownKey: s.watch.Privacy.ShownKey,
		Failed: s.watch.Sampled.Failure,
		Delivered: func(webhook string, ok bool) {
			result := "failed"
			if ok {
				result = "accepted"
			}
			s.watch.Metrics.AlertMessages.WithLabelValues(webhook, result).Inc()
		},
		Missed: s.watch.Metrics.AlertKeysMissed.Inc,
	}
	from := cmp.Or(s.settings.Namespace, "stint")
	for _, w := range s.settings.Webhooks {
		o.Webhooks = append(o.Webhooks, alerts.NewWebhook(w, s.gateway.Transports.To(w.TLS), from))
	}
	return alerts.New(o)
}

// webhookNames are the names of the webhooks of alerts.
func webhookNames(s *config.Settings) (names []string) {
	for _, w := range s.Webhooks {
		names = append(names, w.Name)
	}
	return names
}
