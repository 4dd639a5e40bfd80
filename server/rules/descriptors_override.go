package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// overrideLimits are callers' limits that replace a file's, made once for each amount and period. They may be
// used from many goroutines at once.
type overrideLimits struct {
	mu   sync.RWMutex
	made map[DescriptorLimit][]*stint.Limit // without names
}

// maxOverrideLimits is how many are kept. Beyond that, all are dropped.
const maxOverrideLimits = 1_000

// limits are the limits that a call with d faces under the rule of this name.
func (o *overrideLimits) limits(rule string, d *DescriptorLimit) ([]*stint.Limit, error) {
	k := *d
	k.Name, k.Times = "", max(1, d.Times)
	o.mu.RLock()
	limits := o.made[k]
	o.mu.RUnlock()
	if limits != nil {
		return limits, nil
	}
	l, err := k.limit(rule)
	if err != nil {
		return nil, err
	}
	limits = []*stint.Limit{l}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.made == nil || len(o.made) >= maxOverrideLimits {
		o.made = map[DescriptorLimit][]*stint.Limit{}
	}
	o.made[k] = limits
	return limits, nil
}

// all are the limits that were made, in no order.
func (o *overrideLimits) all() []*stint.Limit {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return slices.Concat(slices.Collect(maps.Values(o.made))...)
}

// limit is d as a limit of the rule of this name.
func (d *DescriptorLimit) limit(rule string) (*stint.Limit, error) {
	switch d.Unit {
	case Second, Minute, Hour, Day, Week, Month, Year:
	case 0:
		return nil, errors.New("the limit of the descriptor has no unit")
	default:
		return nil, fmt.Errorf("the limit of the descriptor has an unknown unit, of %d s", d.Unit)
	}
	if d.Amount < 0 {
		return nil, fmt.Errorf("the limit of the descriptor is %d: must not be negative", d.Amount)
	}
	if most := int64(Year) * 100 / int64(d.Unit); d.Times < 0 || d.Times > most {
		return nil, fmt.Errorf("the limit of the descriptor is for %d times its unit: must be from 1 to %d", d.Times, most)
	}
	period := time.Duration(d.Unit) * time.Duration(d.Times) * time.Second
	return stint.NewLimit(stint.Spec{Name: rule, Algorithm: stint.FixedWindow, Amount: max(1, d.Amount), Period: period})
}

// toldOf is l as shown to callers.
func toldOf(r *Rule, l *stint.Limit) *DescriptorLimit {
	s := l.Spec()
	told := &DescriptorLimit{Name: r.Descriptor.Name, Amount: s.Amount}
	seconds := Unit(s.Period / time.Second)
	switch s.Calendar.Unit {
	case stint.Day:
		seconds = Day
	case stint.Week:
		seconds = Week
	case stint.Month:
		seconds = Month
	case stint.Year:
		seconds = Year
	}
	for _, unit := range []Unit{Year, Month, Week, Day, Hour, Minute, Second} {
		if seconds%unit == 0 && seconds > 0 {
			told.Unit, told.Times = unit, int64(seconds/unit)
			break
		}
	}
	return told
}
