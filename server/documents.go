package server

import (
	"context"
	"time"

	"github.com/stintdev/stint/server/internal/control"
)

// Documents is where a fleet keeps what it shares: a few documents by name, each
// in versions with numbers from 1. redislimit.Documents is one. It may be used
// from many goroutines at once.
//
// Where it is an Announcer, instances also learn which rules others have.
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

// Announcer is Documents by which instances announce to each other which rules they have.
type Announcer interface {
	// Announce announces a text, and returns the texts that instances have announced in
	// the last 30 seconds or so, each once, this one among them.
	Announce(ctx context.Context, text string) ([]string, error)
}

var (
	_ control.Documents = Documents(nil)
	_ control.Announcer = Announcer(nil)
)
