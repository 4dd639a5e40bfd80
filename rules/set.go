package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/stintdev/stint/internal/yamlnode"
)

// Set is a rules file, compiled. It is made by Parse or Load, never changes (its
// fields must not be written to) and may be used from many goroutines at once.
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
	// Version is 12 digits made of the file's text: equal texts have equal
	// versions, and different ones, but for bad luck, different ones.
	Version string

	safelist, blocklist []*expression
	headerNames         map[string]string // lower case → canonical
}

// Load is Parse of the file at path, which also names it in errors.
func Load(path string) (*Set, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// read reads no more of a file than shows that it is too large.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, yamlnode.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return data, nil
}

// Parse reads and compiles the text of a rules file, which file names in errors.
// An error has a line for each of the first 20 problems: file:line:column: what.
// The top-level field server is not looked at; it is the server's own.
func Parse(file string, data []byte) (*Set, error) {
	r, root := yamlnode.Open(file, data)
	s := &Set{Enabled: true, IPv6Prefix: 64, headerNames: map[string]string{}}
	p := &parser{
		Reader:   r,
		compiler: compiler{r, s.headerNames},
		set:      s,
		lines:    map[string]int{},
	}
	sum := sha256.Sum256(data)
	s.Version = hex.EncodeToString(sum[:6])
	p.file(root)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return s, nil
}
