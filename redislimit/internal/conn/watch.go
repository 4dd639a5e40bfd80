package redislimit

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/rueidis"
)

// subscriber is a Client that can listen to channels. It returns when ctx is done
// or the connection is lost. heard is called when the server has confirmed all of them,
// with "" for the channel, and at each message; it must not block.
type subscriber interface {
	subscribe(ctx context.Context, heard func(channel, message string), channels ...string) error
}

// How long Watch waits until it connects again: longer each time, until it has
// been heard of again.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

// Watch calls changed, from this goroutine, soon after a document of the namespace
// was written, and after each time that it has connected, the first among them,
// since something may have been missed; several changes may come as one. It
// returns when ctx is done, and connects again for as long as that takes, by a
// connection of its own.
//
// It has nothing to say where it cannot listen: for want of a permission, or
// because the Client is one of the user's own, with which it only waits for ctx.
// So callers ask Newest now and then, too.
func (d *Documents) Watch(ctx context.Context, changed func()) {
	s, ok := d.store.client.(subscriber)
	if !ok {
		<-ctx.Done()
		return
	}
	news := make(chan struct{}, 1)
	// Apart, for a connection in the making does not mind contexts.
	go listen(ctx, s, d.store.channel(), news)
	for {
		select {
		case <-ctx.Done():
			return
		case <-news:
			if ctx.Err() != nil {
				return
			}
			changed()
		}
	}
}

// listen puts a word into news whenever something is heard, until ctx is done.
func listen(ctx context.Context, s subscriber, channel string, news chan<- struct{}) {
	for failures := 0; ; failures++ {
		heard := make(chan struct{}, 1)
		_ = s.subscribe(ctx, func(string, string) {
			put(heard)
			put(news)
		}, channel)
		select {
		case <-heard:
			failures = 0
		default:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause(failures)):
		}
	}
}

// put leaves a word in c, unless one is there already.
func put(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause is how long to wait after so many failures in a row: a random half of it,
// so that a fleet does not come back all at once.
func pause(failures int) time.Duration {
	p := min(firstPause<<min(failures, 10), longestPause)
	return p/2 + rand.N(p/2)
}

// subscribe implements subscriber.
func (e engine) subscribe(ctx context.Context, heard func(channel, message string), channels ...string) error {
	c, _ := e.Dedicate()
	defer c.Close()
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" && s.Channel == channels[len(channels)-1] {
			heard("", "")
		}
	})
	return c.Receive(ctx, c.B().Subscribe().Channel(channels...).Build(), func(m rueidis.PubSubMessage) { heard(m.Channel, m.Message) })
}
