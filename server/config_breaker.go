package server

import (
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/yamlnode"
)

// readBreaker reads the section breaker of the settings.
func readBreaker(r *yamlnode.Reader, to *stint.Breaker) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		failures, percent, probes := int64(0), int64(0), int64(0)
		fields := r.Mapping(n, yamlnode.Fields{
			"failures": r.Int64(&failures, 1, 1_000_000),
			"percent":  r.Int64(&percent, 1, 100),
			"slow":     r.Period(&to.Slow),
			"wait":     r.Period(&to.Wait),
			"max_wait": r.Period(&to.MaxWait),
			"probes":   r.Int64(&probes, 1, 1000),
		})
		to.Failures, to.Percent, to.Probes = int(failures), int(percent), int(probes)
		for name, d := range map[string]time.Duration{"slow": to.Slow, "wait": to.Wait, "max_wait": to.MaxWait} {
			if fields[name] != nil && d <= 0 {
				r.Report(fields[name], "%s must be more than 0", name)
			}
		}
	}
}
