package config

import (
	"fmt"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// queuesInVain finds rules that delay nothing, because a place in their queue comes up later than a request
// may wait: of two requests at once, the second is refused.
func (s *Settings) queuesInVain(set *rules.Set) (all []rules.Finding) {
	for _, r := range set.Rules {
		if !r.Shape || r.Mode == rules.Off {
			continue
		}
		for _, l := range r.Limits {
			spec := l.Spec()
			if spec.Algorithm != stint.LeakyBucket || l.Capacity() == 1 { // a capacity of 1 is found in the rules
				continue
			}
			if step := spec.Period / time.Duration(spec.Amount); step > s.MaxDelay {
				all = append(all, rules.Finding{Code: rules.CodeNoQueue, Text: fmt.Sprintf(
					"rule %q delays nothing: under %s a request leaves every %s, but max_delay is %s, so each request that would wait is refused; raise max_delay, or remove shape", r.Name, l.Terms(), step.Round(time.Millisecond), s.MaxDelay)})
			}
		}
	}
	return all
}
