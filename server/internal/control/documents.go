package server

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"time"
)

// Documents is where a fleet keeps what it shares: a few documents by name, each
// in versions with numbers from 1. redislimit.Documents is one. It may be used
// from many goroutines at once.
type Documents interface {
	// Now is the time of the fleet, by one clock, whichever instance asks. Entries of
	// documents end by it.
	Now(ctx context.Context) (time.Time, error)
	// Newest is the number of a document's newest version and the SHA-1 of its
	// text, in hexadecimal digits; 0 and "": it has none.
	Newest(ctx context.Context, name string) (number int64, digest string, err error)
	// Read returns a version; nil where there is none, or it is no longer kept.
	// At least the newest 50 are kept.
	Read(ctx context.Context, name string, number int64) ([]byte, error)
	// Write makes text the version with that number if the newest so far is the
	// one before; else it changes nothing and returns false. Where it returns an
	// error, it may have written.
	Write(ctx context.Context, name string, number int64, text []byte) (bool, error)
	// Watch calls changed, from one goroutine, when a document may have changed,
	// until ctx is done. Changes may be missed: ask Newest now and then, too.
	Watch(ctx context.Context, changed func())
}

// memoryDocuments are those of one instance by itself.
type memoryDocuments struct {
	mu       sync.Mutex
	versions map[string][][]byte // by name; version n is at n-1
}

// documentVersions is how many versions of a document are kept.
const documentVersions = 50

// Now implements Documents.
func (m *memoryDocuments) Now(context.Context) (time.Time, error) { return time.Now(), nil }

// Newest implements Documents.
func (m *memoryDocuments) Newest(_ context.Context, name string) (int64, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.versions[name]
	if len(all) == 0 {
		return 0, "", nil
	}
	return int64(len(all)), digest(all[len(all)-1]), nil
}

// digest is the SHA-1 of a text, in hexadecimal digits.
func digest(text []byte) string {
	sum := sha1.Sum(text)
	return hex.EncodeToString(sum[:])
}

// Read implements Documents.
func (m *memoryDocuments) Read(_ context.Context, name string, number int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if number < 1 || number > int64(len(m.versions[name])) {
		return nil, nil
	}
	return m.versions[name][number-1], nil
}

// Write implements Documents.
func (m *memoryDocuments) Write(_ context.Context, name string, number int64, text []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.versions == nil {
		m.versions = map[string][][]byte{}
	}
	all := m.versions[name]
	if number != int64(len(all))+1 {
		return false, nil
	}
	all = append(all, bytes.Clone(text))
	if old := len(all) - documentVersions; old > 0 {
		all[old-1] = nil
	}
	m.versions[name] = all
	return true, nil
}

// Watch implements Documents.
func (m *memoryDocuments) Watch(ctx context.Context, _ func()) { <-ctx.Done() }
