package stats

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/statsd_exporter/pkg/mapper"

	"github.com/stintdev/stint/server/config"
)

// defaultMapping is envoyproxy/ratelimit's mapping, completed by what it leaves out.
//
//go:embed mapping.yaml
var defaultMapping string

// exposition shows statistics to Prometheus, under the names of a mapping. Several statistics may form one
// series, with their sum. A series is dropped when all of its statistics are, or when it has not changed for
// the ttl of its mapping.
type exposition struct {
	mapper *mapper.MetricMapper
	tags   []tag
	log    *slog.Logger

	mu         sync.Mutex
	series     map[string]*series // by its name and labels
	families   map[string]*family // by name
	gauges     map[string]*shown  // by the name of the statistic
	conflicted bool               // and logged
}

// shown is a statistic, as Prometheus sees it.
type shown struct {
	taken  uint64  // the part already in the series
	series *series // nil: it has not been mapped, or is dropped
	scale  float64
	mapped bool
}

// family are the series of a name.
type family struct {
	kind, help string
	size       int
}

// series is one series. It is a prometheus.Metric.
type series struct {
	key, name string
	desc      *prometheus.Desc
	labels    []*dto.LabelPair
	gauge     bool
	value     atomic.Uint64     // a float64
	times     prometheus.Metric // instead of value, in a histogram or summary
	of        int               // how many statistics
	ttl       time.Duration     // 0: forever
	changed   time.Time
}

// Desc implements prometheus.Metric.
func (s *series) Desc() *prometheus.Desc { return s.desc }

// Write implements prometheus.Metric.
func (s *series) Write(to *dto.Metric) error {
	if s.times != nil {
		return s.times.Write(to)
	}
	to.Label = s.labels
	value := math.Float64frombits(s.value.Load())
	if s.gauge {
		to.Gauge = &dto.Gauge{Value: &value}
	} else {
		to.Counter = &dto.Counter{Value: &value}
	}
	return nil
}

func newExposition(c *config.EnvoyStats, tags []tag, log *slog.Logger) (*exposition, error) {
	p := &exposition{
		mapper: &mapper.MetricMapper{Logger: slog.New(slog.DiscardHandler)}, tags: tags, log: log,
		series: map[string]*series{}, families: map[string]*family{}, gauges: map[string]*shown{},
	}
	mapping := defaultMapping
	if c.PrometheusMilliseconds {
		mapping = strings.Replace(mapping, "    scale: 0.001\n", "", 1)
	}
	from := "the default mapping"
	if c.PrometheusMapper != "" {
		switch text, err := os.ReadFile(c.PrometheusMapper); {
		case err == nil:
			mapping, from = string(text), c.PrometheusMapper
		case errors.Is(err, fs.ErrNotExist): // Envoy Gateway mounts the file as an optional one
			log.Error("the mapping for Prometheus is missing; the default one is used", "file", c.PrometheusMapper)
		default:
			return nil, fmt.Errorf("stats: mapping for Prometheus: %w", err)
		}
	}
	err := p.mapper.InitFromYAMLString(mapping)
	if err == nil && len(p.mapper.Mappings) == 0 {
		err = errors.New("there are no mappings")
	}
	if err != nil {
		return nil, fmt.Errorf("stats: mapping for Prometheus: %s: %w", from, err)
	}
	return p, nil
}

// Metrics answers Prometheus. It is nil if the settings have no address for Prometheus.
func (s *Stats) Metrics() http.Handler {
	if s.prometheus == nil {
		return nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{s})
	gatherers := prometheus.Gatherers{registry}
	if s.more != nil {
		gatherers = append(gatherers, s.more)
	}
	return promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	})
}

// collector is a prometheus.Collector without descriptions, because series come and go.
type collector struct{ s *Stats }

func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(to chan<- prometheus.Metric) {
	gauges := c.s.gauges()
	for _, s := range c.s.prometheus.update(c.s.groups(), gauges, time.Now()) {
		to <- s
	}
}

// update brings all series up to date and returns them.
func (p *exposition) update(groups []*group, gauges []gauge, now time.Time) []*series {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range groups {
		p.take(g, now)
	}
	for _, g := range gauges {
		of := p.gauges[g.name]
		if of == nil {
			of = new(shown)
			p.gauges[g.name] = of
		}
		if p.mapOnce(of, g.name, mapper.MetricTypeGauge); of.series != nil {
			of.series.value.Store(math.Float64bits(float64(g.value) * of.scale))
			of.series.changed = now
		}
	}
	for _, s := range p.series {
		if s.ttl > 0 && s.times == nil && now.Sub(s.changed) > s.ttl {
			p.drop(s)
		}
	}
	all := make([]*series, 0, len(p.series))
	for _, s := range p.series {
		all = append(all, s)
	}
	return all
}

// take adds the counts since the last time to the series. A counter that is 0 has no series.
func (p *exposition) take(g *group, now time.Time) {
	if g.forgotten {
		return // a sweep forgot it since the groups were listed
	}
	for i, kind := range g.kinds {
		n := g.n[i].Load()
		if g.shown == nil {
			if n == 0 {
				continue
			}
			g.shown = make([]shown, len(g.kinds))
		}
		of := &g.shown[i]
		if n <= of.taken {
			continue
		}
		if of.series != nil && p.series[of.series.key] != of.series {
			*of = shown{taken: of.taken} // its ttl has passed
		}
		if p.mapOnce(of, g.name+"."+kind, mapper.MetricTypeCounter); of.series != nil {
			sum := math.Float64frombits(of.series.value.Load()) + float64(n-of.taken)*of.scale
			of.series.value.Store(math.Float64bits(sum))
			of.series.changed = now
		}
		of.taken = n
	}
}

// forget takes the counts of a group, and drops series without other statistics.
func (p *exposition) forget(g *group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take(g, time.Now())
	for i := range g.shown {
		s := g.shown[i].series
		if s == nil || p.series[s.key] != s {
			continue
		}
		if s.of--; s.of == 0 {
			p.drop(s)
		}
	}
	g.shown, g.forgotten = nil, true
}

// mapOnce finds the series of a statistic. There is none if the mapping drops it, or if its name
// there belongs to metrics of another type.
func (p *exposition) mapOnce(of *shown, name string, kind mapper.MetricType) {
	if of.mapped {
		return
	}
	of.mapped = true
	m := p.mapping(name, kind)
	if m == nil {
		return
	}
	of.scale = m.scale
	if of.series = p.seriesOf(m, string(kind)); of.series != nil {
		of.series.of++
	}
}

// mapping is the result of the mapping for a statistic.
type mapping struct {
	name, help string
	labels     []*dto.LabelPair // by name
	scale      float64
	ttl        time.Duration
	*mapper.MetricMapping
}

const defaultHelp = "The statistic of envoyproxy/ratelimit."

// mapping returns nil if the statistic is dropped.
func (p *exposition) mapping(name string, kind mapper.MetricType) *mapping {
	found, labels, ok := p.mapper.GetMapping(name, kind)
	m := &mapping{name: mapper.EscapeMetricName(name), help: defaultHelp, scale: 1, ttl: p.mapper.Defaults.Ttl, MetricMapping: found}
	if !ok {
		m.MetricMapping = &mapper.MetricMapping{ObserverType: p.mapper.Defaults.ObserverType}
	} else {
		if found.Action == mapper.ActionTypeDrop || found.Name == "" {
			return nil
		}
		m.name, m.ttl = mapper.EscapeMetricName(found.Name), found.Ttl
		if found.HelpText != "" {
			m.help = found.HelpText
		}
		if found.Scale.Set {
			m.scale = found.Scale.Val
		}
	}
	values := map[string]string{}
	for _, t := range p.tags {
		values[mapper.EscapeMetricName(t.key)] = withoutSyntax(t.value, "")
	}
	for name, value := range labels {
		if _, isTag := values[name]; !isTag || !m.HonorLabels {
			values[name] = value
		}
	}
	for name, value := range values {
		m.labels = append(m.labels, &dto.LabelPair{Name: &name, Value: &value})
	}
	slices.SortFunc(m.labels, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return m
}

// seriesOf returns the series of a mapping, and makes it if needed. nil: its name is taken.
func (p *exposition) seriesOf(m *mapping, kind string) *series {
	f := p.families[m.name]
	if f == nil && p.isFree(m.name, kind) {
		f = &family{kind: kind, help: m.help}
		p.families[m.name] = f
	}
	if f == nil || f.kind != kind {
		if !p.conflicted {
			p.log.Warn("statistics of different types are mapped to one name; Prometheus gets those of one type", "name", m.name)
			p.conflicted = true
		}
		return nil
	}
	key := m.name
	names := make([]string, len(m.labels))
	for i, l := range m.labels {
		names[i] = l.GetName()
		key += "\x00" + l.GetName() + "\x00" + l.GetValue()
	}
	s := p.series[key]
	if s == nil {
		s = &series{key: key, name: m.name, labels: m.labels, gauge: kind == string(mapper.MetricTypeGauge), ttl: m.ttl}
		s.desc = prometheus.NewDesc(m.name, f.help, names, nil)
		p.series[key] = s
		f.size++
	}
	return s
}

// isFree reports whether no histogram or summary has, or would have, series of this name.
func (p *exposition) isFree(name, kind string) bool {
	for _, suffix := range []string{"_sum", "_count", "_bucket"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && p.families[base] != nil && hasTimes(p.families[base].kind) {
			return false
		}
		if hasTimes(kind) && p.families[name+suffix] != nil {
			return false
		}
	}
	return true
}

func (p *exposition) drop(s *series) {
	delete(p.series, s.key)
	f := p.families[s.name]
	if f.size--; f.size == 0 {
		delete(p.families, s.name)
	}
}
