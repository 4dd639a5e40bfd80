package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/server/internal/control"
)

// liveCollector collects the current state at each scrape. Gauges set at each change could show both
// versions, or none.
type liveCollector struct{ s *Server }

var (
	rulesInfo = prometheus.NewDesc("stint_rules_info", "1, labelled with the version of the rules in force.", []string{"version"}, nil)
	rulesHave = prometheus.NewDesc("stint_rules", "Rules in force, including those in mode off.", nil, nil)

	rulesNumber      = prometheus.NewDesc("stint_fleet_rules_version", "Number of the fleet's version of the rules in force; 0: they are a file's.", nil, nil)
	changesPending   = prometheus.NewDesc("stint_pending_changes", "Changes made at run time that are in force at this instance alone, because the store was away.", nil, nil)
	controlsNumber   = prometheus.NewDesc("stint_controls_version", "Number of the version of the changes made at run time that is in force; 0: none.", nil, nil)
	controlsSource   = prometheus.NewDesc("stint_controls_source", "1 for the source of the changes made at run time: the store, state_dir until the store first answers, or nowhere.", []string{"source"}, nil)
	clockAhead       = prometheus.NewDesc("stint_clock_ahead_seconds", "How far this machine's clock is ahead of the store's, by which bans by hand and overrides expire.", nil, nil)
	bansRunning      = prometheus.NewDesc("stint_bans", "Bans by penalty that this instance imposed and that still run.", []string{"rule"}, nil)
	bansByHand       = prometheus.NewDesc("stint_manual_bans", "Bans by hand in force, the same on every instance.", nil, nil)
	breakerState     = prometheus.NewDesc("stint_breaker_state", "1 for the state that the breaker of the store is in.", []string{"state"}, nil)
	storeDown        = prometheus.NewDesc("stint_store_down_seconds", "For how long the store, or a part of it, has been away; 0: it decides.", nil, nil)
	instancesLive    = prometheus.NewDesc("stint_instances", "Instances that share the limits, as this one last counted them.", nil, nil)
	denialsTotal     = prometheus.NewDesc("stint_denials_remembered_total", "Requests refused without asking the store, because its earlier refusal still held.", nil, nil)
	denialsListening = prometheus.NewDesc("stint_denials_listening", "1 while this instance receives the refunds and resets of others, and so remembers refusals; else 0.", nil, nil)
	leasedUnits      = prometheus.NewDesc("stint_lease_units_total", "Units of limits charged ahead, and what became of them.", []string{"state"}, nil)
	leasedHeld       = prometheus.NewDesc("stint_lease_units_held", "Units of limits that are charged ahead and neither served nor refunded.", nil, nil)
	inFlight         = prometheus.NewDesc("stint_in_flight", "Requests in flight, by listener.", []string{"listener"}, nil)
	logDropped       = prometheus.NewDesc("stint_log_lines_dropped_total", "Log lines dropped because nobody read the log.", nil, nil)
	overridesHave    = prometheus.NewDesc("stint_overrides", "Overrides in force, the same on every instance.", nil, nil)
)

// Describe is for prometheus.Collector.
func (liveCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rulesInfo, rulesHave, rulesNumber, controlsNumber, changesPending, controlsSource, clockAhead, bansRunning, bansByHand, overridesHave, breakerState, storeDown, instancesLive, denialsTotal, denialsListening, leasedUnits, leasedHeld, inFlight, logDropped} {
		to <- d
	}
}

// Collect is for prometheus.Collector.
func (c liveCollector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := c.s.control.Status()
	gauge(rulesInfo, 1, now.Set.Version)
	gauge(rulesHave, float64(len(now.Set.Rules)))
	gauge(rulesNumber, float64(now.Number))
	gauge(controlsNumber, float64(now.Version))
	gauge(changesPending, float64(len(now.Pending)))
	for _, source := range [...]control.Source{control.SourceStore, control.SourceState, control.SourceNone} {
		is := 0.0
		if now.Source == source {
			is = 1
		}
		gauge(controlsSource, is, string(source))
	}
	ahead, _ := c.s.control.ClockAhead()
	gauge(clockAhead, ahead.Seconds())
	gauge(bansByHand, float64(len(now.Controls.Bans)))
	gauge(overridesHave, float64(len(now.Controls.Overrides)))
	gauge(storeDown, c.s.store.Down().Seconds())
	if f := c.s.store.Fleet; f.IsLayered() {
		for _, state := range []fleet.BreakerState{fleet.Closed, fleet.Open, fleet.HalfOpen, fleet.PartlyOpen} {
			is := 0.0
			if f.State() == state {
				is = 1
			}
			gauge(breakerState, is, state.String())
		}
		gauge(instancesLive, float64(f.Live()))
	}
	if d := c.s.store.Fleet; c.s.store.Remembers() {
		to <- prometheus.MustNewConstMetric(denialsTotal, prometheus.CounterValue, float64(d.Remembered()))
		listening := 0.0
		if d.Connected() {
			listening = 1
		}
		gauge(denialsListening, listening)
	}
	if l := c.s.store.Fleet; l.IsLayered() {
		u := l.Leased()
		for _, of := range []struct {
			state string
			units int64
		}{{"charged", u.Charged}, {"served", u.Served}, {"refunded", u.Returned}, {"void", u.Void}} {
			to <- prometheus.MustNewConstMetric(leasedUnits, prometheus.CounterValue, float64(of.units), of.state)
		}
		gauge(leasedHeld, float64(u.Held))
	}
	if c.s.dropped != nil {
		to <- prometheus.MustNewConstMetric(logDropped, prometheus.CounterValue, float64(c.s.dropped()))
	}
	gauge(inFlight, float64(c.s.door.Admission.Gateway.Taken()), gatewayListener)
	gauge(inFlight, float64(c.s.door.Admission.Check.Taken()), checkListener)
	running := c.s.watch.Bans.Count()
	for _, r := range now.Set.Rules {
		if r.Penalty != nil {
			gauge(bansRunning, float64(running[r.Name]), r.Name)
		}
	}
}
