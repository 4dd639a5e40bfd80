package recent

import (
	"encoding/binary"

	"github.com/stintdev/stint/server/rules"
)

// What a call of Envoy's service and its descriptors have.
const (
	callEach = 1 << iota
	callQuota
	callAhead
)

const (
	givesBack = 1 << iota
	hasOverride
)

func (w *writer) call(d *rules.Descriptors) {
	if !w.fits(1 + most(d.Domain) + binary.MaxVarintLen32) {
		return
	}
	w.byte(flag(d.Each, callEach) | flag(d.Quota, callQuota) | flag(d.Ahead, callAhead))
	w.string(d.Domain)
	w.number(uint64(len(d.List)))
	for i := range d.List {
		w.descriptor(&d.List[i])
	}
}

func flag(set bool, is byte) byte {
	if set {
		return is
	}
	return 0
}

func (w *writer) descriptor(d *rules.Descriptor) {
	n := 1 + 5*binary.MaxVarintLen64
	if d.Override != nil {
		n += most(d.Override.Name)
	}
	for _, e := range d.Entries {
		n += most(e.Key) + most(e.Value)
	}
	if !w.fits(n) {
		return
	}
	w.byte(flag(d.GiveBack, givesBack) | flag(d.Override != nil, hasOverride))
	w.number(uint64(d.Cost))
	if l := d.Override; l != nil {
		w.string(l.Name)
		w.number(uint64(l.Amount))
		w.number(uint64(l.Unit))
		w.number(uint64(l.Times))
	}
	w.number(uint64(len(d.Entries)))
	for _, e := range d.Entries {
		w.string(e.Key)
		w.string(e.Value)
	}
}

func (r *reader) call() *rules.Descriptors {
	has := r.byte()
	d := &rules.Descriptors{Each: has&callEach != 0, Quota: has&callQuota != 0, Ahead: has&callAhead != 0, Domain: r.string()}
	d.List = make([]rules.Descriptor, r.number())
	for i := range d.List {
		r.descriptor(&d.List[i])
	}
	return d
}

func (r *reader) descriptor(d *rules.Descriptor) {
	has := r.byte()
	d.GiveBack, d.Cost = has&givesBack != 0, int64(r.number())
	if has&hasOverride != 0 {
		d.Override = &rules.DescriptorLimit{Name: r.string(), Amount: int64(r.number()), Unit: rules.Unit(r.number()), Times: int64(r.number())}
	}
	d.Entries = make([]rules.Entry, r.number())
	for i := range d.Entries {
		d.Entries[i] = rules.Entry{Key: r.string(), Value: r.string()}
	}
}
