package rules

// Descriptors is a call of Envoy's rate limit service: a domain, and descriptors of a request. Each
// descriptor finds at most one rule in the files of Envoy's form (File.Envoy) with this domain, by
// walking their tree.
type Descriptors struct {
	Domain string
	List   []Descriptor // the descriptors, in the order of the call
	// Each decides each descriptor by itself: units of one stay charged if another refuses the call.
	// Otherwise a refused call takes nothing.
	Each bool
	// Quota treats every rule as one with DescriptorRule.Quota.
	Quota bool
	// Ahead means that units are taken before they are used, so that a refused call charges nothing, even
	// with DescriptorRule.ChargeRefused.
	Ahead bool
}

// Descriptor is one descriptor of a call.
type Descriptor struct {
	Entries []Entry // from the root of the tree downwards
	// Cost is how many units the descriptor takes; 0: it only asks.
	Cost int64
	// GiveBack means that Cost is refunded instead of taken.
	GiveBack bool
	// Override is the caller's limit, which replaces the files' limit; nil: none.
	Override *DescriptorLimit
}

// Entry is a key and a value of a Descriptor.
type Entry struct{ Key, Value string }

// DescriptorLimit is a limit as Envoy's service has it: Amount units in each Times units of time.
type DescriptorLimit struct {
	// Name is shown to callers; empty: there is none.
	Name string
	// Amount may be 0: everything is refused.
	Amount int64
	Unit   Unit
	// Times multiplies Unit; 0 is 1.
	Times int64
}

// Unit is a unit of time of Envoy's service, in seconds. The zero Unit is not a unit.
type Unit int64

// A month has 30 days and a year 365, as in Envoy's service. With time_zone they are the calendar's.
const (
	Second Unit = 1
	Minute Unit = 60
	Hour   Unit = 60 * Minute
	Day    Unit = 24 * Hour
	Week   Unit = 7 * Day
	Month  Unit = 30 * Day
	Year   Unit = 365 * Day
)

// DescriptorRule has the additional fields of a Rule from a file of Envoy's form. It never changes.
type DescriptorRule struct {
	Domain string
	// Path is the way to the rule in its file: for each level the key and the value, which is
	// empty where the file gives none.
	Path []Entry
	// Stat is the rule's name in the statistics of Envoy's service, such as
	// "mongo_cps.database_users.key": the domain, and for each level key or key_value. A match may
	// have another; see DescriptorMatch.Stat.
	Stat string
	DescriptorLimit
	// Unlimited means that the rule allows everything and asks for nothing: it has no limits.
	Unlimited bool
	// Quota means that the rule refuses a call only together with all other quota rules that the
	// call finds (quota_mode). It is asked by itself.
	Quota bool
	// ChargeRefused means that refused units are charged nevertheless, if they are more than one: they were
	// used before the call.
	ChargeRefused bool
	// Replaces are the names of limits that do not count if this rule is found too.
	Replaces []string
	// Metadata is the file's metadata for responses; nil: none.
	Metadata map[string]any
	// Detailed means that statistics have the values of requests.
	Detailed bool

	overrides *overrideLimits // of the rule for the overrides of a domain; nil: another rule
	levels    []descriptorLevel
	parts     int // how many parts of entries make the key
	// detailedPath means that value_to_metric is given on the path.
	detailedPath bool
}

// DescriptorMatch is what one Descriptor found.
type DescriptorMatch struct {
	// Rule is the rule that was found; nil: none, so that the descriptor is not limited. Its
	// Descriptor is not nil. An override has a rule of its own, which all overrides of a domain
	// share; Limit is the one that counts.
	Rule *Rule
	// Limit is the limit to show to the caller; nil: none.
	Limit *DescriptorLimit
	// Key is the key that is counted under Rule.
	Key string
	// Ask is the index of the descriptor's ask in Plan.Asks or, with GiveBack, in Plan.GiveBack; -1:
	// none, because nothing is limited. If an operator's Override gives the key several limits, the asks for
	// the others follow. Descriptors of a call that find the same rule and key share one ask, which takes the
	// sum. Where Limit.Amount is 0, the ask takes more than its limit ever has.
	Ask int
	// GiveBack means that the descriptor refunds units.
	GiveBack bool
	// Replaced means that the rule was found, and that another rule replaces it.
	Replaced bool
	// Stat is the name of the match in the statistics of Envoy's service. Its parts are as they
	// were sent: separators in them are not escaped.
	Stat string
}
