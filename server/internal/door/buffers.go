package door

import (
	"strings"
	"sync"
)

// Buffers are reused to copy bodies and to read lists of checks.
type Buffers struct{}

// BufferSize is the size of one.
const BufferSize = 32 << 10

var freeBuffers = sync.Pool{New: func() any { return new([BufferSize]byte) }}

// Get is for httputil.BufferPool.
func (Buffers) Get() []byte { return freeBuffers.Get().(*[BufferSize]byte)[:] }

// Put is for httputil.BufferPool.
func (Buffers) Put(b []byte) { freeBuffers.Put((*[BufferSize]byte)(b)) }

// SmallBody is the size up to which bodies need no room: instance.in_flight bounds their
// number.
const SmallBody = 4 << 10

// DecodedBytes is the most memory that a body of JSON takes when decoded: far more than its size for
// [{"":0},{"":0}]. TestBytesOfBodies compares.
func DecodedBytes(body string) int64 {
	return DecodedSize(len(body), func(c string) int { return strings.Count(body, c) })
}

// DecodedSize is DecodedBytes by the size of a body, in which count counts a character.
func DecodedSize(bytes int, count func(string) int) int64 {
	const object, list, value = 510, 48, 32
	return int64(bytes + object*count("{") + list*count("[") + value*count(","))
}
