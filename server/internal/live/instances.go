package live

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint/server/adminapi"
)

// knownInstances are the instances as last read, for all callers within about a second.
type knownInstances struct {
	sync.Mutex
	all []adminapi.Instance
	at  time.Time
}

// Instances returns the instances of the fleet, sorted by their hosts. While the others cannot be
// read, it returns this one alone.
func (l *Live) Instances(ctx context.Context) []adminapi.Instance {
	l.known.Lock()
	defer l.known.Unlock()
	if l.known.all != nil && l.clock().Sub(l.known.at) < tick-slack {
		return l.known.all
	}
	l.mu.Lock()
	l.step()
	self := l.reportNow()
	l.mu.Unlock()
	all := []adminapi.Instance{self.instance(l.ID)}
	all[0].Self = true
	if l.Reports != nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		parts, err := l.Reports.Reported(ctx, partsName)
		if err != nil && l.Failed != nil {
			l.Failed(err)
		}
		for id, text := range parts {
			if r, err := readReport(text); err == nil && id != l.ID {
				all = append(all, r.instance(id))
			}
		}
	}
	slices.SortFunc(all, func(a, b adminapi.Instance) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.ID, b.ID))
	})
	l.known.all, l.known.at = all, l.clock()
	return all
}

func (r *report) instance(id string) adminapi.Instance {
	return adminapi.Instance{
		ID: id, Host: r.Host, Program: r.Program, Started: r.Started, Version: r.Version,
		Decides: r.Decides, Breaker: r.Breaker, Outcomes: r.Rates, Decide: r.Decide,
	}
}
