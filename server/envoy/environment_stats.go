package envoy

import (
	"cmp"
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// datadogVariables are those of Datadog's client, and the tags that it makes of them.
var datadogVariables = []struct{ name, tag string }{
	{"DD_ENTITY_ID", "dd.internal.entity_id"}, {"DD_ENV", "env"}, {"DD_SERVICE", "service"}, {"DD_VERSION", "version"},
}

// stats reads where statistics go.
func (e *environment) stats() {
	prometheus, dog := e.boolean("USE_PROMETHEUS", false), e.boolean("USE_DOG_STATSD", false)
	statsd := e.boolean("USE_STATSD", !prometheus && !dog)
	address := net.JoinHostPort(cmp.Or(e.values["STATSD_HOST"], "localhost"), strconv.FormatInt(e.number("STATSD_PORT", 8125, 0, 65535), 10))
	// Refusals are remembered without it (see remembered_denials), but only counted with it.
	cache := e.number("LOCAL_CACHE_SIZE_IN_BYTES", 0, 0, math.MaxInt64) > 0
	e.give("envoy.stats.local_cache", strconv.FormatBool(cache), "LOCAL_CACHE_SIZE_IN_BYTES")
	mogrifiers := e.mogrifiers()
	if e.boolean("DISABLE_STATS", false) {
		return
	}
	switch {
	case statsd && dog:
		e.report("USE_STATSD", "and USE_DOG_STATSD are both true, but share one address: set one of them")
	case statsd:
		e.give("envoy.statsd", address, "USE_STATSD", "STATSD_HOST", "STATSD_PORT")
	case dog:
		e.give("envoy.dogstatsd", address, "USE_DOG_STATSD", "STATSD_HOST", "STATSD_PORT")
		e.dogStatsd(mogrifiers)
	}
	if prometheus {
		e.prometheus()
	}
}

func (e *environment) dogStatsd(mogrifiers []map[string]any) {
	if len(mogrifiers) > 0 {
		e.give("envoy.stats.mogrifiers", inYAML(mogrifiers), "USE_DOG_STATSD_MOGRIFIERS")
	}
	tags, names := map[string]string{}, []string(nil)
	for _, v := range datadogVariables {
		if e.set(v.name) {
			tags[v.tag], names = e.values[v.name], append(names, v.name)
		}
	}
	if len(tags) > 0 {
		e.give("envoy.stats.dogstatsd_tags", inYAML(tags), names...)
	}
}

func (e *environment) prometheus() {
	listen := e.text("PROMETHEUS_ADDR", ":9090")
	if _, _, err := net.SplitHostPort(listen); err != nil {
		e.report("PROMETHEUS_ADDR", "%.60q: want an address such as :9090", listen)
	}
	e.give("envoy.prometheus_listen", listen, "USE_PROMETHEUS", "PROMETHEUS_ADDR")
	e.write([]variable{{"PROMETHEUS_PATH", "envoy.stats.prometheus_path", (*environment).asItIs}})
}

// mogrifiers reads those that USE_DOG_STATSD_MOGRIFIERS names, in its order.
func (e *environment) mogrifiers() []map[string]any {
	var all []map[string]any
	for name := range strings.SplitSeq(e.values["USE_DOG_STATSD_MOGRIFIERS"], ",") {
		if name = strings.ToUpper(strings.TrimSpace(name)); name == "" {
			continue
		}
		// The documentation of envoyproxy/ratelimit has both spellings.
		prefix := "DOG_STATSD_MOGRIFIER_" + name + "_"
		if plural := "DOG_STATSD_MOGRIFIERS_" + name + "_"; !e.set(prefix+"PATTERN") && e.set(plural+"PATTERN") {
			prefix = plural
		}
		pattern, as, tags := e.values[prefix+"PATTERN"], e.values[prefix+"NAME"], e.pairs(prefix+"TAGS", ":")
		if pattern == "" {
			e.report(prefix+"PATTERN", "is missing, and USE_DOG_STATSD_MOGRIFIERS names it")
		}
		if _, err := regexp.Compile(pattern); err != nil {
			e.report(prefix+"PATTERN", "%v", err)
		}
		if as == "" {
			e.report(prefix+"NAME", "is missing, and USE_DOG_STATSD_MOGRIFIERS names it")
		}
		for _, tag := range slices.Sorted(maps.Keys(tags)) {
			if tags[tag] == "" {
				e.report(prefix+"TAGS", "%.60q has no value", tag)
			}
		}
		m := map[string]any{"pattern": pattern, "name": as}
		if len(tags) > 0 {
			m["tags"] = tags
		}
		all = append(all, m)
	}
	return all
}
