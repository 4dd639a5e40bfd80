package redislimit

import (
	"fmt"

	"github.com/stintdev/stint/redislimit/internal/conn"
)

// OpenLater is Open for a server that may not be there yet: it returns at once, with
// an error only if the address itself is wrong, and connects in the background, for
// as long as it takes, until Close. Until then every call fails, with the reason of
// the last attempt; but Take and TakeBatch wait for the first one to end, as long as
// their callers do, so that a server that is there decides from the beginning. told is
// called after each attempt, from one goroutine: with what the server says of itself, or
// why it cannot serve; nil: nobody is told.
func OpenLater(address string, told func(Server, error)) (*Store, error) {
	return OpenLaterIn(address, "", told)
}

// OpenLaterIn is OpenLater with a namespace that goes before the address's own, as in
// OpenIn.
func OpenLaterIn(address, namespace string, told func(Server, error)) (*Store, error) {
	s, err := openAddress(address, namespace)
	if err != nil {
		return nil, err
	}
	s.conn.ConnectInBackground(func(server conn.Server, err error) {
		if err != nil {
			err = fmt.Errorf("redislimit: %w", err)
		}
		if told != nil {
			told(Server(server), err)
		}
	})
	return s, nil
}
