package rules

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
