package rules

import "strings"

// For tests of package rules_test.
const (
	MaxRules   = maxRules
	MaxLimits  = maxLimits
	MaxListed  = maxListed
	MaxTiers   = maxTiers
	MaxFiles   = maxFiles
	DefaultKey = defaultKey
)

// EndpointRows are the rows of the table of endpoints: path, use, and the API whose fields it has.
func EndpointRows() (rows [][3]string) {
	for _, e := range endpoints {
		rows = append(rows, [3]string{e.path, e.use.String(), e.form.String()})
	}
	return rows
}

// FreeRoots are the resources below which nothing uses tokens.
func FreeRoots() []string { return freeRoots }

// Use is what an endpoint does to tokens.
func (e Endpoint) Use() string { return e.use.String() }

// Measures are the functions of conditions of alerts: for each, how it may be called.
func Measures() map[string][]string {
	all := map[string][]string{}
	for name, m := range measures {
		for n := m.least; n <= len(m.args); n++ {
			args := make([]string, n)
			for i, a := range m.args[:n] {
				args[i] = [...]string{ruleArgument: "RULE", outcomeArgument: "OUTCOME", quantileArgument: "Q"}[a]
			}
			all[name] = append(all[name], name+"("+strings.Join(args, ", ")+")")
		}
	}
	return all
}

// AlertOutcomes are the outcomes that the measure rate knows.
func AlertOutcomes() []string { return alertOutcomes }
