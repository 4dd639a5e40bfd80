package watch

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/kind"
)

// ruleSeries has the counts of the rules of one name. A counter of package prometheus keeps its labels and takes
// some 500 bytes, and a rule has six of them or more: with 10,000 rules, that is more than the rules
// themselves take. Here are numbers alone, and a scrape makes the rest.
type ruleSeries struct {
	name    string
	created time.Time
	has     atomic.Uint32 // the counts that are series, by 1<<index
	counts  [nOfRule]atomic.Int64
	holds   atomic.Pointer[holdSeries] // nil: no limit was ever held
}

// holdSeries has the counts of a rule with held limits. All are series.
type holdSeries [nOfHolds]atomic.Int64

// Indexes of ruleSeries.counts.
const (
	nDecided   = 0 // as kind.Allowed, and the kinds after it
	nBeside    = nDecided + int(kind.Banned-kind.Allowed) + 1
	nFallback  = nBeside + 1 // by stint.OnErrorLocal, and the policies after it
	nResponses = nFallback + int(stint.OnErrorDeny) + 1
	nShadow    = nResponses + 1
	nSkipped   = nShadow + 1
	nOfRule    = nSkipped + 1
)

// Indexes of a holdSeries.
const (
	holdsNow = iota
	holdsSettled
	holdsGivenBack
	holdsLost
	holdsNotFound // when a caller of the check API settled
	unitsHeld
	unitsUsed
	unitsAbove
	costsUnknown
	nOfHolds
)

// family is a metric of rules. It has a count for each of values, from the index first on.
type family struct {
	desc   *prometheus.Desc
	gauge  bool
	first  int
	labels []*dto.LabelPair // of values; nil: there is one count, with the label of the rule alone
}

// newFamily has the labels in order: "rule" is the last.
func newFamily(first int, name, help, label string, values ...string) family {
	f := family{first: first, gauge: !strings.HasSuffix(name, "_total")}
	labels := []string{"rule"}
	if label != "" {
		labels = []string{label, "rule"}
	}
	f.desc = prometheus.NewDesc(name, help, labels, nil)
	for _, value := range values {
		f.labels = append(f.labels, &dto.LabelPair{Name: &label, Value: &value})
	}
	return f
}

var (
	ruleFamilies = [...]family{
		decisionsFamily(nDecided, kind.OfRules),
		newFamily(nBeside, "stint_decisions_by_others_total", "Requests that a rule applied to and another rule decided.", ""),
		newFamily(nFallback, "stint_fallback_decisions_total", "Decisions by a rule's on_store_error, because the store failed.", "policy", stint.OnErrorLocal.String(), stint.OnErrorAllow.String(), stint.OnErrorDeny.String()),
		newFamily(nResponses, "stint_response_violations_total", "Responses of upstreams that counted as violations of a rule's penalty.", ""),
		newFamily(nShadow, "stint_shadow_refusals_total", "Requests that a rule in shadow mode would have refused.", ""),
		newFamily(nSkipped, "stint_shadow_skipped_total", "Requests that a rule in shadow mode did not decide: malformed for it, no room to count, or the store did not decide.", ""),
	}
	holdFamilies = [...]family{
		newFamily(holdsNow, "stint_holds", "Requests in flight through this instance that hold units by a rule.", ""),
		newFamily(holdsSettled, "stint_holds_ended_total", "Requests that held units by a rule and have ended, by what became of their holds.", "result", "settled", "given_back", "lost", "unknown"),
		newFamily(unitsHeld, "stint_hold_units_total", "Budget units per rule: reserved, charged, and charged above the reservation.", "kind", "held", "used", "excess"),
		newFamily(costsUnknown, "stint_costs_unknown_total", "Requests whose cost under a rule could not be read in the response.", ""),
	}
)

// noRuleFamily is by kind.
var noRuleFamily = decisionsFamily(int(kind.Allowed), kind.OfRules, kind.OfNone)

func decisionsFamily(first int, of ...kind.Scope) family {
	var words []string
	for _, scope := range of {
		words = append(words, kind.Words(scope)...)
	}
	return newFamily(first, "stint_decisions_total", "Requests decided, by the rule that decided and the outcome.", "outcome", words...)
}

// make makes series of counts.
func (s *ruleSeries) make(counts ...int) {
	for _, i := range counts {
		s.has.Or(1 << i)
	}
}

// makeHolds makes the series of a rule with held limits.
func (s *ruleSeries) makeHolds() *holdSeries {
	s.holds.CompareAndSwap(nil, new(holdSeries))
	return s.holds.Load()
}

// seriesByName are the series of all rules. It may be used from many goroutines at once.
type seriesByName struct {
	noRule  [kind.Kinds]atomic.Int64 // requests that no rule decided
	created time.Time

	mu     sync.Mutex
	byName map[string]*ruleSeries
	all    []*ruleSeries // of byName. It is only appended to, or replaced.
}

// of returns the series of the rules of this name. New ones are no series yet: see make.
func (s *seriesByName) of(name string) *ruleSeries {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.byName[name]
	if of == nil {
		of = &ruleSeries{name: name, created: time.Now()}
		s.byName[name] = of
		s.all = append(s.all, of)
	}
	return of
}

func (s *seriesByName) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name] != nil
}

// keep removes the series of rules whose names are not in names.
func (s *seriesByName) keep(names map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.byName)
	maps.DeleteFunc(s.byName, func(name string, _ *ruleSeries) bool { return !names[name] })
	if len(s.byName) < before {
		s.all = slices.Collect(maps.Values(s.byName))
	}
}

// list returns the series. They are not to be changed.
func (s *seriesByName) list() []*ruleSeries {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Describe is for prometheus.Collector.
func (s *seriesByName) Describe(to chan<- *prometheus.Desc) {
	for _, all := range [...][]family{ruleFamilies[:], holdFamilies[:]} {
		for i := range all {
			to <- all[i].desc
		}
	}
}

// Collect is for prometheus.Collector.
func (s *seriesByName) Collect(to chan<- prometheus.Metric) {
	c := collecting{to: to}
	c.begin("", s.created)
	c.family(&noRuleFamily, s.noRule[:], ^uint32(0))
	for _, of := range s.list() {
		c.begin(of.name, of.created)
		has := of.has.Load()
		for i := range ruleFamilies {
			c.family(&ruleFamilies[i], of.counts[:], has)
		}
		if holds := of.holds.Load(); holds != nil {
			for i := range holdFamilies {
				c.family(&holdFamilies[i], holds[:], ^uint32(0))
			}
		}
	}
}

// collecting is a scrape.
type collecting struct {
	to      chan<- prometheus.Metric
	rule    *dto.LabelPair
	created *timestamppb.Timestamp
}

var ruleLabel = "rule"

// begin begins the series of a rule.
func (c *collecting) begin(rule string, created time.Time) {
	c.rule, c.created = &dto.LabelPair{Name: &ruleLabel, Value: &rule}, timestamppb.New(created)
}

// family collects those counts of a family that are in has.
func (c *collecting) family(f *family, counts []atomic.Int64, has uint32) {
	for i := range max(1, len(f.labels)) {
		if has>>(f.first+i)&1 == 0 {
			continue
		}
		s := &seriesValue{of: f, created: c.created, value: float64(counts[f.first+i].Load())}
		s.labels[1] = c.rule
		if f.labels != nil {
			s.labels[0] = f.labels[i]
		}
		c.to <- s
	}
}

// seriesValue is the value of a series in a scrape.
type seriesValue struct {
	of      *family
	labels  [2]*dto.LabelPair // the first is nil if of has no labels
	created *timestamppb.Timestamp
	value   float64
}

// Desc is for prometheus.Metric.
func (s *seriesValue) Desc() *prometheus.Desc { return s.of.desc }

// Write is for prometheus.Metric.
func (s *seriesValue) Write(to *dto.Metric) error {
	if to.Label = s.labels[:]; s.of.labels == nil {
		to.Label = s.labels[1:]
	}
	if s.of.gauge {
		to.Gauge = &dto.Gauge{Value: &s.value}
	} else {
		to.Counter = &dto.Counter{Value: &s.value, CreatedTimestamp: s.created}
	}
	return nil
}
