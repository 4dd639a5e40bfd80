package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/heavy"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/admin"
	"github.com/stintdev/stint/server/internal/offenders"
	"github.com/stintdev/stint/server/internal/reports"
	"github.com/stintdev/stint/server/internal/watch"
	"github.com/stintdev/stint/server/rules"
)

// newOffenders returns the counter of offenders; nil: they are not counted.
func newOffenders(s *Server) *offenders.Counter {
	if s.settings.Offenders == 0 {
		return nil
	}
	return offenders.New(offenders.Options{
		Most:    int(s.settings.Offenders),
		Reports: s.reports,
		Own:     isOwn(s.reports),
		ID:      s.id,
		Now:     s.control.Now,
		Failed: func(err error) {
			s.watch.Sampled.Failure("offenders cannot be shared with the fleet; this instance counts its own", err)
		},
	})
}

// isOwn reports whether only this instance reports to r.
func isOwn(r Reports) bool {
	_, own := r.(*reports.Memory)
	return own
}

// offenderPages answers the admin API about offenders.
type offenderPages struct {
	counter *offenders.Counter // nil: offenders are not counted
	watch   *watch.Watch
}

// topOffenders answers GET /v1/offenders.
func (p *offenderPages) topOffenders(ctx context.Context, q admin.OffendersQuery) (*adminapi.Offenders, error) {
	if p.counter == nil {
		return nil, nil
	}
	r, err := p.counter.Top(ctx, q.Query)
	if err != nil {
		p.watch.Sampled.Failure("the fleet's offenders cannot be read; this instance shows its own", err)
	}
	j := adminapi.Offenders{
		Of: offenders.Dimensions[q.Of], By: offenders.Weights[q.By], Since: r.Since,
		Total: r.Total, Instances: r.Instances, Offenders: []adminapi.Offender{},
	}
	if err != nil {
		j.Missing = "what the fleet has reported cannot be read, so this is what this instance has counted: " + err.Error()
	}
	for _, c := range r.Counts {
		if len(j.Offenders) == q.Limit {
			break
		}
		if o, ok := p.offender(q.Of, c.Key); ok && (q.Rule == "" || o.Rule == q.Rule) && strings.Contains(cmp.Or(o.Name, o.Key.String()), q.Contains) {
			o.Count, o.Error = c.Count, c.Error
			j.Offenders = append(j.Offenders, o)
		}
	}
	return &j, nil
}

// offender is an offender as shown, without its count. ok is false if the name is not an offender's: another
// program may have written to the store.
func (p *offenderPages) offender(of offenders.Dimension, name string) (o adminapi.Offender, ok bool) {
	switch of {
	case offenders.Keys:
		var k offenders.Key
		k, ok = offenders.KeyOf(name)
		text := p.watch.Privacy.ShownKey(k.Key)
		o.Rule, o.Key, o.Hashed = k.Rule, rules.Key(text), k.Hashed || text != k.Key
		_, err := o.Key.MarshalJSON()
		return o, ok && err == nil
	case offenders.Clients:
		var text string
		text, ok = offenders.ClientOf(name)
		o.Name = p.watch.Privacy.ShownKey(text)
		o.Hashed = o.Name != text
		return o, ok
	}
	o.Name = name
	return o, true
}

// offenderHistory answers GET /v1/offenders/history. The query may have a key or a client in clear or as
// shown.
func (p *offenderPages) offenderHistory(ctx context.Context, q admin.HistoryQuery) (*adminapi.History, error) {
	if p.counter == nil {
		return nil, nil
	}
	all, err := p.counter.Hours(ctx, q.Of, q.By)
	if err != nil {
		return nil, fmt.Errorf("the history of the fleet: %w", err)
	}
	asked := q.Name
	if q.Of == offenders.Keys {
		asked = string(q.Key)
	}
	asShown := p.watch.Privacy.ShownKey(asked)
	wanted := func(name string) bool {
		o, ok := p.offender(q.Of, name)
		text := o.Name
		if q.Of == offenders.Keys {
			text = string(o.Key)
		}
		return ok && o.Rule == q.Rule && (text == asked || text == asShown)
	}
	j := adminapi.History{Hours: []adminapi.HistoryHour{}, Weekdays: make([][]int64, 7)}
	for i := range j.Weekdays {
		j.Weekdays[i] = make([]int64, 24)
	}
	add := func(at time.Time, count, off int64) {
		j.Hours = append(j.Hours, adminapi.HistoryHour{From: at, Count: count, Error: off})
		day := (int(at.Weekday()) + 6) % 7 // Monday first
		j.Weekdays[day][at.Hour()] += count
	}
	for _, h := range all {
		if q.Of == offenders.Rules && q.Name == "" {
			if h.Total > 0 {
				add(h.From, h.Total, 0)
			}
			continue
		}
		if i := slices.IndexFunc(h.Counts, func(c heavy.Count) bool { return wanted(c.Key) }); i >= 0 {
			add(h.From, h.Counts[i].Count, h.Counts[i].Error)
		}
	}
	return &j, nil
}
