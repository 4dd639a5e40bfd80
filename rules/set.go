package rules

import (
	"net/netip"
)

// Set is a rules file, or several, compiled. It is made by Parse, ParseFiles or
// Load, never changes (its fields must not be written to) and may be used from many
// goroutines at once.
type Set struct {
	// Enabled is the kill switch: where it is false, nothing matches. It is true
	// where the file does not say.
	Enabled bool
	// TrustedProxies are the networks whose word about the client's address is
	// believed.
	TrustedProxies []netip.Prefix
	// IPv6Prefix is how many bits of an IPv6 address count as one client: 1 to
	// 128, 64 where the file does not say.
	IPv6Prefix int
	// Rules are all of the file's, in its order, also those in mode off.
	Rules []*Rule
	// Version is 12 digits made of what the files say, in order, and not of their
	// names, comments, layout or section server: equal rules have equal versions,
	// whatever the settings beside them, and different ones, but for bad luck,
	// different ones.
	Version string

	// HasServer tells whether there was a section server.
	HasServer bool
	// Tiers are the names of the file's tiers, in its order; see Rule.Tiers.
	Tiers []string
	// Findings is what works as written but hardly as meant.
	Findings []Finding

	safelist, blocklist list
	hasDefault          bool              // one of Rules is Default
	tiers               []*expression     // the conditions of Tiers
	headerNames         map[string]string // lower case → canonical
	bans                byNetwork[*Ban]   // by hand, of networks
	reads               Ambiguity         // what may mislead its expressions
	repeatable          repeatable
	secrets             []secretAt // that its files name
	instance            *Instance  // nil: nothing is known of one
	base                *Set       // what With was called on; nil: this is it
}

// Load is ParseFiles of what Read finds at path, which also names it in errors.
func Load(path string) (*Set, error) {
	files, err := Read(path)
	if err != nil {
		return nil, err
	}
	return ParseFiles(files)
}

// Parse reads and compiles the text of a rules file, which file names in errors.
// An error has a line for each of the first 20 problems: file:line:column: what.
// The top-level field server is not looked at; it is the server's own.
func Parse(file string, data []byte) (*Set, error) {
	return ParseFiles([]File{{file, data}})
}
