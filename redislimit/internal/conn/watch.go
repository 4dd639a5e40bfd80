package conn

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/rueidis"
)

// The wait before a lost connection is made again: longer each time.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

// Watch calls changed, on this goroutine, after each message on a channel, and after each
// connection, because messages may have been missed; several may cause one call. It connects again
// until ctx is done. If it cannot listen, it waits for ctx.
func (c *Conn) Watch(ctx context.Context, channel string, changed func()) {
	s := c.subscriber()
	if s == nil {
		<-ctx.Done()
		return
	}
	news := make(chan struct{}, 1)
	// On its own goroutine, because connecting does not end with ctx.
	go watch(ctx, s, channel, news)
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

func watch(ctx context.Context, s subscriber, channel string, news chan<- struct{}) {
	for failures := 0; ; failures++ {
		received := make(chan struct{}, 1)
		_ = s.subscribe(ctx, func(string, string) {
			signal(received)
			signal(news)
		}, channel)
		select {
		case <-received:
			failures = 0
		default:
		}
		if !rest(ctx, pause(failures)) {
			return
		}
	}
}

// rest waits, and returns false if ctx ended.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause is how long to wait after this number of failures. Half is random, against herds.
func pause(failures int) time.Duration {
	p := min(firstPause<<min(failures, 10), longestPause)
	return p/2 + rand.N(p/2)
}

func (e engine) subscribe(ctx context.Context, receive func(channel, message string), channels ...string) error {
	c, _ := e.Dedicate()
	defer c.Close()
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" && s.Channel == channels[len(channels)-1] {
			receive("", "")
		}
	})
	return c.Receive(ctx, c.B().Subscribe().Channel(channels...).Build(), func(m rueidis.PubSubMessage) { receive(m.Channel, m.Message) })
}
