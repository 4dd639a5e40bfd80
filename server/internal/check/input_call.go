package check

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/stintdev/stint/server/rules"
)

// A check, an event or an explanation can be about a call of Envoy's rate limit service:
//
//	{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}], "hits_addend": 2}]}

var (
	descriptorFields = []string{"entries", "hits_addend", "is_negative_hits", "limit"}
	entryFields      = []string{"key", "value"}
	overrideFields   = []string{"name", "requests_per_unit", "unit"}
)

// unsaidCost is the Cost of a descriptor that has none.
const unsaidCost = -1

// envoyCall makes q a call.
func (q *Input) envoyCall() *rules.Descriptors {
	if q.Descriptors == nil {
		q.Descriptors = &rules.Descriptors{}
	}
	return q.Descriptors
}

// completeCall checks q's call, and gives q's cost to the descriptors that have none.
func (q *Input) completeCall() error {
	switch {
	case q.Descriptors.Domain == "":
		return errors.New("descriptors: want a domain, too")
	case len(q.Descriptors.List) == 0:
		return errors.New("domain: want descriptors, too")
	case q.Operation != "" || q.Attrs != nil:
		return errors.New("domain: operation and attrs come from Envoy's call; leave them out")
	}
	for i := range q.Descriptors.List {
		d := &q.Descriptors.List[i]
		if d.GiveBack && q.Kind == ChargeUnits {
			return fmt.Errorf("descriptor %d: is_negative_hits: a charge gives nothing back", i+1)
		}
		if d.Cost == unsaidCost {
			d.Cost = q.Cost
		}
	}
	return nil
}

func (r *inputReader) descriptors(to *rules.Descriptors) error {
	return r.List(func() error {
		d := rules.Descriptor{Cost: unsaidCost}
		if err := r.descriptor(&d); err != nil {
			return fmt.Errorf("descriptor %d: %w", len(to.List)+1, err)
		}
		to.List = append(to.List, d)
		return nil
	})
}

func (r *inputReader) descriptor(d *rules.Descriptor) error {
	err := r.Fields(descriptorFields, func(i int) error {
		switch descriptorFields[i] {
		case "entries":
			return r.List(func() error { return r.entry(d) })
		case "hits_addend":
			return r.units(&d.Cost)
		case "is_negative_hits":
			return r.ReadBool(&d.GiveBack)
		default:
			d.Override = &rules.DescriptorLimit{Amount: -1}
			return r.override(d.Override)
		}
	})
	if err == nil && len(d.Entries) == 0 {
		return errors.New("want entries")
	}
	return err
}

func (r *inputReader) entry(d *rules.Descriptor) error {
	var e rules.Entry
	err := r.Fields(entryFields, func(i int) error {
		if entryFields[i] == "key" {
			return r.name(&e.Key)
		}
		return r.ReadText(&e.Value)
	})
	if err == nil && e.Key == "" {
		err = errors.New("want a key")
	}
	if err != nil {
		return fmt.Errorf("entry %d: %w", len(d.Entries)+1, err)
	}
	d.Entries = append(d.Entries, e)
	return nil
}

// timeUnits are the units of time of Envoy's service.
var timeUnits = map[string]rules.Unit{
	"second": rules.Second, "minute": rules.Minute, "hour": rules.Hour,
	"day": rules.Day, "week": rules.Week, "month": rules.Month, "year": rules.Year,
}

// override reads a limit that replaces the rules' limit.
func (r *inputReader) override(l *rules.DescriptorLimit) error {
	err := r.Fields(overrideFields, func(i int) error {
		switch overrideFields[i] {
		case "name":
			return r.ReadText(&l.Name)
		case "requests_per_unit":
			if err := r.units(&l.Amount); err != nil {
				return err
			}
			if l.Amount > math.MaxUint32 {
				return fmt.Errorf("%d: must be at most %d", l.Amount, int64(math.MaxUint32))
			}
			return nil
		}
		var text string
		if err := r.ReadText(&text); err != nil {
			return err
		}
		if l.Unit = timeUnits[strings.ToLower(text)]; l.Unit == 0 {
			return errors.New("want second, minute, hour, day, week, month or year")
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case l.Amount < 0:
		return errors.New("want requests_per_unit")
	case l.Unit == 0:
		return errors.New("want a unit")
	}
	return nil
}
