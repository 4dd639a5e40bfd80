package config

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
)

// EnvoyStats says where the statistics of envoyproxy/ratelimit go.
type EnvoyStats struct {
	// PrometheusListen is the address of metrics. Off or empty: none.
	PrometheusListen string
	// Statsd is the host:port of a statsd, which gets statistics over TCP, and DogStatsd the host:port of a
	// Datadog agent, over UDP. At most one is set. Empty: none.
	Statsd, DogStatsd string
	// Tags are the tags of each statistic, and DogStatsdTags additional ones for DogStatsd.
	Tags, DogStatsdTags map[string]string
	// FlushInterval is how often changes are sent to Statsd or DogStatsd. 0: every 10 s.
	FlushInterval time.Duration
	// NearLimitRatio is the part of a limit above which a call counts as near the limit.
	NearLimitRatio float64
	// LocalCache counts refusals without the store separately, and keeps the statistics of the local cache.
	LocalCache bool
	// Mogrifiers are for DogStatsd; the first that matches counts.
	Mogrifiers []Mogrifier
	// PrometheusPath is the path of the metrics. Empty: /metrics.
	PrometheusPath string
	// PrometheusMapper is a file; empty: the default mapping. PrometheusMilliseconds gives response times in
	// milliseconds instead of seconds.
	PrometheusMapper       string
	PrometheusMilliseconds bool
}

// Mogrifier turns names of statistics that match the regular expression Pattern into Name with Tags. $1 in
// these is the match of the first group.
type Mogrifier struct {
	Pattern, Name string
	Tags          map[string]string
}

func (s *EnvoyStats) rows(r *yamlnode.Reader) schema.Rows {
	hostPort := schema.Scalar("host:port", `^[^:]+:[0-9]+$|^\[[^\]]+\]:[0-9]+$`)
	return schema.Rows{
		{Name: "prometheus_listen", Value: schema.Parsed(r, &s.PrometheusListen, parseListenOrOff, addressOrOff).Expanding(r), Default: Off, Example: `":9102"`, See: "envoy-reference.md#statistics",
			Says: "Address of metrics with the names of envoyproxy/ratelimit; off: none."},
		{Name: "statsd", Value: schema.Parsed(r, &s.Statsd, parseStatsd, hostPort).Expanding(r), Example: "localhost:8125", Not: []string{"dogstatsd"}, See: "envoy-reference.md#statistics",
			Says: "A statsd for the statistics, over TCP."},
		{Name: "dogstatsd", Value: schema.Parsed(r, &s.DogStatsd, parseStatsd, hostPort).Expanding(r), Example: "localhost:8125", See: "envoy-reference.md#statistics",
			Says: "A Datadog agent for the statistics, over UDP."},
		{Name: "stats", Value: schema.Section(r, s.details(r), nil), See: "envoy-reference.md#statistics",
			Says: "Details of the statistics."},
	}
}

func (s *EnvoyStats) details(r *yamlnode.Reader) schema.Rows {
	return schema.Rows{
		{Name: "tags", Value: texts(r, &s.Tags, strings.Clone), Example: "{region: eu}",
			Says: "Tags of each statistic; labels for Prometheus."},
		{Name: "dogstatsd_tags", Value: texts(r, &s.DogStatsdTags, strings.Clone), Example: "{env: production}",
			Says: "More tags, for dogstatsd alone."},
		{Name: "flush_interval", Value: schema.Duration(r, "flush_interval", &s.FlushInterval, schema.AboveZero, schema.Endless), Default: "10s",
			Says: "How often changes are sent to statsd or dogstatsd."},
		{Name: "near_limit_ratio", Value: schema.Parsed(r, &s.NearLimitRatio, parseRatio, ratio), Default: "0.8",
			Says: "The share of a limit above which units count as near it."},
		{Name: "local_cache", Value: schema.Bool(r, &s.LocalCache), Default: "true",
			Says: "Also counts separately refusals made without the store."},
		{Name: "mogrifiers", Value: schema.Mappings(r, func(m *Mogrifier) schema.Rows { return m.rows(r) }, func(m *Mogrifier, n *yamlnode.Node, _ map[string]*yamlnode.Node) {
			s.Mogrifiers = append(s.Mogrifiers, *m)
			if m.Pattern == "" || m.Name == "" {
				r.Report(n, "a mogrifier needs pattern and name")
			}
		}), Example: `[{pattern: "^shop_(.*)$", name: shop, tags: {rule: $1}}]`,
			Says: "Names and tags of statistics for dogstatsd. The first matching pattern counts."},
		{Name: "prometheus_path", Value: schema.Parsed(r, &s.PrometheusPath, parseMetricsPath, schema.Scalar("path", "^/")), Default: "/metrics", Example: "/stats",
			Says: "Path of the metrics at prometheus_listen."},
		{Name: "prometheus_mapper", Value: schema.Text(r, &s.PrometheusMapper, "file"), Example: "/etc/stint/mapper.yaml",
			Says: "A statsd_exporter mapping file, in place of envoyproxy/ratelimit's."},
		{Name: "prometheus_milliseconds", Value: schema.Bool(r, &s.PrometheusMilliseconds), Default: "false",
			Says: "Without prometheus_mapper, gives response times in milliseconds, not seconds."},
	}
}

func (m *Mogrifier) rows(r *yamlnode.Reader) schema.Rows {
	return schema.Rows{
		{Name: "pattern", Value: schema.Parsed(r, &m.Pattern, parsePattern, schema.Scalar("regular expression", schema.Something)), Required: true, Example: `"^shop_(.*)$"`,
			Says: "A regular expression for statistics' names."},
		{Name: "name", Value: schema.Text(r, &m.Name, "name").Matching(schema.Something), Required: true, Example: "shop",
			Says: "The new name; $1 is the pattern's first group."},
		{Name: "tags", Value: texts(r, &m.Tags, strings.Clone), Example: "{rule: $1}",
			Says: "Its tags; $1 is the same."},
	}
}

func parsePattern(text string) (string, error) {
	_, err := regexp.Compile(text)
	return text, err
}

func parseMetricsPath(text string) (string, error) {
	if !strings.HasPrefix(text, "/") {
		return "", fmt.Errorf("%.60q: want a path such as /metrics", text)
	}
	return text, nil
}
