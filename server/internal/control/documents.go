package control

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// Documents stores a fleet's shared documents; see server.Documents.
type Documents interface {
	Now(ctx context.Context) (time.Time, error)
	Newest(ctx context.Context, name string) (number int64, digest string, err error)
	Read(ctx context.Context, name string, number int64) ([]byte, error)
	Write(ctx context.Context, name string, number int64, text []byte) (bool, error)
	Watch(ctx context.Context, changed func())
}

// memoryDocuments are the documents of a single instance.
type memoryDocuments struct {
	mu       sync.Mutex
	versions map[string][][]byte // by name; version n is at n-1
}

// Versions is how many versions of a document are kept.
const Versions = 50

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
	if old := len(all) - Versions; old > 0 {
		all[old-1] = nil
	}
	m.versions[name] = all
	return true, nil
}

// Watch implements Documents.
func (m *memoryDocuments) Watch(ctx context.Context, _ func()) { <-ctx.Done() }
