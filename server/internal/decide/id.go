package decide

import "math/rand/v2"

// Identify returns the ID, which it makes if there is none.
func (t *Request) Identify() string {
	if t.ID == "" {
		t.ID = newDecisionID()
	}
	return t.ID
}

// newDecisionID returns 16 hexadecimal digits. They are random, so IDs of all instances differ, and none
// reveals how many requests there are.
func newDecisionID() string {
	const digits = "0123456789abcdef"
	var id [16]byte
	n := rand.Uint64()
	for i := range id {
		id[i] = digits[n&15]
		n >>= 4
	}
	return string(id[:])
}
