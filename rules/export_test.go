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
