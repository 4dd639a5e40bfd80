package alerts

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/reports"
)

// A flush of the store repeats no message and loses none, also if the evaluator ends with it.
func TestAlertsOutliveAFlush(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, blocked)
			a, b := f.instance(t, "a"), f.instance(t, "b")
			f.pass(t, 3*time.Minute, 50, 50, a, b)
			expect(t, "before", f.hook.told(), "firing blocked")
			f.Memory = reports.Memory{}
			if ends {
				a = b
			}
			f.pass(t, 3*time.Minute, 50, 50, b, a)
			expect(t, "after it", f.hook.told())
			f.Memory = reports.Memory{}
			f.pass(t, 3*time.Minute, 100, 0, b, a)
			expect(t, "when it is over", f.hook.told(), "resolved blocked")
		})
	}
}

// Nor does a flush, or an outage, right after a message that no other instance has read of.
func TestAlertsOutliveAFlushAtOnce(t *testing.T) {
	for _, away := range []time.Duration{0, 20 * time.Second, 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, blocked)
			a, b := f.instance(t, "a"), f.instance(t, "b")
			f.pass(t, time.Minute, 100, 0, a, b)
			for f.hook.calls == 0 {
				f.pass(t, time.Second, 50, 50, b, a)
			}
			f.down = away > 0
			f.pass(t, away, 50, 50, b, a)
			f.down, f.Memory = false, reports.Memory{}
			f.pass(t, 5*time.Minute, 50, 50, b, a)
			expect(t, "while it fires", f.hook.told(), "firing blocked")
			f.pass(t, 5*time.Minute, 100, 0, b, a)
			expect(t, "when it is over", f.hook.told(), "resolved blocked")
		})
	}
}

// The next evaluator knows what was sent a day ago and longer.
func TestEvaluatorIsReplacedAfterDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, blocked)
		a, b := f.instance(t, "a"), f.instance(t, "b")
		f.pass(t, 3*time.Minute, 50, 50, a)
		expect(t, "at first", f.hook.told(), "firing blocked")
		f.pass(t, keepState+time.Hour, 50, 50, a)
		f.pass(t, 3*time.Minute, 50, 50, b)
		expect(t, "by the next one", f.hook.told())
	})
}

const near = `
rules: [{name: login, limits: [10 per 1h]}]
alerts: [{name: near, when: usage > 80% of login}]
`

// uses lets an instance decide a request that leaves a key with little.
func (f *fleetOf) uses(a *Alerts, key string) {
	a.Decided(&f.set.Alerts[0], &stint.Decision{Allowed: true, Limit: f.set.Rules[0].Limits[0], Key: key, Remaining: 1})
}

// A key is told if the evaluator ends before it tells, even if the webhook was never sent
// anything.
func TestKeyIsToldByTheNextEvaluator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, near)
		a, b := f.instance(t, "a"), f.instance(t, "b")
		f.pass(t, time.Minute, 1, 0, a, b)
		f.uses(b, "ann")
		f.pass(t, time.Minute, 1, 0, b)
		expect(t, "by the next one", f.hook.told(), "firing near ann=90%")
	})
}

// Keys that were told are not told again after a flush.
func TestKeysAfterAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, near)
		a, b := f.instance(t, "a"), f.instance(t, "b")
		f.uses(a, "ann")
		f.uses(b, "bob")
		f.pass(t, time.Minute, 1, 0, a, b)
		if told := f.hook.told(); len(told) != 2 {
			t.Fatalf("told %q", told)
		}
		f.Memory = reports.Memory{}
		f.pass(t, time.Minute, 1, 0, b, a)
		f.uses(b, "cid")
		f.uses(a, "dan")
		f.pass(t, time.Minute, 1, 0, b, a)
		expect(t, "after it", f.hook.told(), "firing near dan=90% cid=90%")
	})
}
