package suggest

// maxKeys bounds the keys that a Study remembers if its Options do not, and so its memory: to about 120 MB.
const maxKeys = 200_000

// entry is what a Study knows about a key. A key that came once has no state of its own,
// because in many logs most keys come once.
type entry struct {
	at, cost int64
	k        *key
}

func (e entry) units() int64 {
	if e.k != nil {
		return e.k.total
	}
	return e.cost
}
