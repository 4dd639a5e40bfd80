package offenders

import (
	"context"
	"sync"
	"time"

	"github.com/stintdev/stint/internal/heavy"
)

// Query asks for the heaviest of a kind.
type Query struct {
	Of    Dimension
	By    Weight
	Since time.Time // older counts are left out, as far as spans allow; see Result.Since
}

// Result answers a Query.
type Result struct {
	heavy.List           // all that are known, at most Options.Most
	Since      time.Time // the start of the oldest span that counts, or of this process if there is nothing else
	Instances  int64     // how many were counted, at most at once
}

// Top returns the heaviest. This instance's counts are included at once, those of others after some seconds.
// If the fleet's reports cannot be read, the error says why, and the Result has only this instance's counts
// since the start of the span.
func (s *Counter) Top(ctx context.Context, q Query) (Result, error) {
	own := s.own(q.Of, q.By)
	r := Result{List: own.List, Since: own.from, Instances: 1}
	if !s.followed.Load() {
		return r, nil
	}
	now := s.Now()
	since := startOf(spanOf(q.Since))
	if now.Sub(since) > keepSpans-hour {
		since = since.Truncate(hour)
	}
	all := []heavy.List{own.List}
	c := collection{s: s, Query: q, own: own.span, at: now}
	err := c.hours(ctx, since, func(_ time.Time, some []heavy.List) { all = append(all, some...) })
	if err != nil {
		return r, err
	}
	if s.Own && since.Before(s.began) {
		since = s.began
	}
	return Result{heavy.Merge(s.Most, all...), since, max(1, c.instances)}, nil
}

// Hour has the counts of an hour.
type Hour struct {
	From time.Time
	heavy.List
}

// Hours returns the kept hours, the oldest first. Hours without counts may be left out.
func (s *Counter) Hours(ctx context.Context, of Dimension, by Weight) ([]Hour, error) {
	own := s.own(of, by)
	now := s.Now().UTC()
	current := now.Truncate(hour)
	if !s.followed.Load() {
		return []Hour{{current, own.List}}, nil
	}
	lists := map[time.Time][]heavy.List{current: {own.List}}
	c := collection{s: s, Query: Query{Of: of, By: by}, own: own.span, at: now}
	err := c.hours(ctx, current.Add(-Keeps), func(at time.Time, some []heavy.List) { lists[at] = append(lists[at], some...) })
	if err != nil {
		return nil, err
	}
	var all []Hour
	for at := current.Add(-Keeps); !at.After(current); at = at.Add(hour) {
		if some := lists[at]; len(some) > 0 {
			all = append(all, Hour{at, heavy.Merge(s.Most, some...)})
		}
	}
	return all, nil
}

// own is this instance's counts in the present span.
type own struct {
	heavy.List
	span int64
	from time.Time
}

func (s *Counter) own(of Dimension, by Weight) own {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drainLocked()
	return own{s.now[of][by].Top(s.Most), s.span, s.from}
}

// collection reads the fleet's reports.
type collection struct {
	s *Counter
	Query
	own       int64 // the span for which this instance's own part is newer
	at        time.Time
	instances int64
}

// hours calls add with the lists of all hours from since on.
func (c *collection) hours(ctx context.Context, since time.Time, add func(hour time.Time, some []heavy.List)) error {
	for n := hourOf(since); n <= hourOf(c.at); n++ {
		start := startOfHour(n)
		if !start.Before(since) && c.at.Sub(start) > keepSpans-2*hour { // it may be merged
			some, err := c.report(ctx, hourName(n), false)
			if err != nil {
				return err
			}
			if len(some) > 0 {
				add(start, some)
				continue
			}
			if c.at.Sub(start) > keepSpans+hour {
				continue // its spans are gone
			}
		}
		for i := range spansOfHour {
			at := n*spansOfHour + i
			if startOf(at).Before(since) || at > spanOf(c.at) {
				continue
			}
			some, err := c.span(ctx, at)
			if err != nil {
				return err
			}
			add(start, some)
		}
	}
	return nil
}

// span returns the lists of a span, merged or not.
func (c *collection) span(ctx context.Context, n int64) ([]heavy.List, error) {
	if startOf(n + 1).Before(c.at.Add(-mergeAfter)) {
		if some, err := c.report(ctx, spanName(n), false); err != nil || len(some) > 0 {
			return some, err
		}
	}
	return c.report(ctx, partsName(n), n == c.own)
}

// report returns the lists of a report; if others is true, without this instance's.
func (c *collection) report(ctx context.Context, name string, others bool) ([]heavy.List, error) {
	parts, err := c.s.others.read(ctx, c.s, name, others)
	if err != nil {
		return nil, err
	}
	var all []heavy.List
	instances := int64(0)
	if others {
		instances = 1
	}
	for of, text := range parts {
		if others && of == c.s.ID {
			continue
		}
		l, n, err := decode(text, func(of Dimension, by Weight) bool { return of == c.Of && by == c.By })
		if err != nil {
			c.s.Failed(err)
			continue
		}
		all, instances = append(all, l[c.Of][c.By]), instances+n
	}
	c.instances = max(c.instances, instances)
	return all, nil
}

// latest has the last parts of the present span that were read. Without it, many pages that show offenders
// would read the parts of all instances again and again.
type latest struct {
	mu    sync.Mutex
	name  string
	at    time.Time
	parts map[string][]byte
}

// fresh is how long parts that were read are used.
const fresh = 5 * time.Second

func (l *latest) read(ctx context.Context, s *Counter, name string, present bool) (map[string][]byte, error) {
	if !present {
		return s.Reports.Reported(ctx, name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.name == name && time.Since(l.at) < fresh {
		return l.parts, nil
	}
	parts, err := s.Reports.Reported(ctx, name)
	if err == nil {
		l.name, l.at, l.parts = name, time.Now(), parts
	}
	return parts, err
}
