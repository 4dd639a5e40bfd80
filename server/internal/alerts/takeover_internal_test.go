package alerts

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/reports"
)

// A flush of the store repeats no message and loses none, whichever instance evaluates then.
func TestAlertsOutliveAFlush(t *testing.T) {
	for _, next := range []string{"the evaluator", "another instance"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, blocked)
			a, b := f.instance(t, "a"), f.instance(t, "b")
			f.pass(t, 3*time.Minute, 50, 50, a, b)
			expect(t, "before", f.hook.told(), "firing blocked")
			f.Memory = reports.Memory{}
			if next == "another instance" {
				a, b = b, a
			}
			f.pass(t, 3*time.Minute, 50, 50, a, b)
			expect(t, "after it, by "+next, f.hook.told())
			f.Memory = reports.Memory{}
			f.pass(t, 3*time.Minute, 100, 0, a, b)
			expect(t, "when it is over, by "+next, f.hook.told(), "resolved blocked")
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
		expect(t, "after it", f.hook.told(), "firing near cid=90%", "firing near dan=90%")
	})
}
