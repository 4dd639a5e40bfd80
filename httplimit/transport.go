package httplimit

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// Transport is an http.RoundTripper that keeps outgoing requests within a limit, by default
// per host. Requests wait for their turn as long as their context allows (see
// stint.Limiter.WaitN), or are refused. A request that is refused or cannot be decided is
// not sent. A Transport is safe for concurrent use. Do not copy it or change its fields
// after first use.
//
// If Limit is held, such as "20 in_flight", a request holds its unit until the body of its response
// is closed, is read to its end, or fails; until its context ends; or until Base returns an error. A
// connection that changed its protocol (101) holds until its body is closed. Then the unit is charged,
// except under an in-flight limit.
//
// Each redirect that an http.Client follows counts as a request. Transport does not retry. It ignores
// a server's Retry-After unless MaxPause is set.
type Transport struct {
	// Limit is the limit of each key. Give it a name if the Limiter's Store is shared; see By. nil: 100
	// per 1m.
	Limit *stint.Limit
	// Limiter decides. Like By, Transport asks a stint.Networked Store through its
	// Fallback. nil: a Limiter in memory.
	Limiter *stint.Limiter
	// Key returns the key that a request counts under. nil: the URL's host in lower case, with
	// the port unless it is the scheme's default.
	Key Key
	// Anonymous says what happens to requests whose key is "". The zero Anonymous refuses them.
	Anonymous stint.Anonymous
	// Refuse makes RoundTrip return a *stint.RefusedError instead of waiting. It does
	// not wait for a leaky bucket's delay either.
	Refuse bool
	// MaxPause is the longest pause for a Retry-After, such as time.Minute: after a response of 429
	// or 503 with a Retry-After, requests with the same key wait, or are refused, for that time, at
	// most for MaxPause. The caller gets the response. The pause applies to all requests for the key
	// through Limiter, whatever the limit, and to Transports with MaxPause of other processes over
	// the same Store; see stint.Limiter.Pause. 0: Retry-After is ignored.
	MaxPause time.Duration
	// Base sends the requests that pass. nil: http.DefaultTransport.
	Base http.RoundTripper

	memory stint.Limiter
	once   sync.Once
	in     *stint.Limiter // Limiter with its fallback, or memory
}

// RoundTrip implements http.RoundTripper. It returns the errors of Base and of
// stint.Limiter, and *stint.RefusedError.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key, held, err := t.take(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must, even where it fails
		}
		return nil, err
	}
	return t.send(r, key, &heldCall{ctx: r.Context(), held: held})
}

// send sends r, with its key and its hold h.
func (t *Transport) send(r *http.Request, key string, h *heldCall) (resp *http.Response, err error) {
	defer func() {
		if resp == nil { // also if Base panics
			h.end()
		}
	}()
	resp, err = t.base().RoundTrip(r)
	if resp == nil {
		return nil, err
	}
	if t.MaxPause > 0 && key != "" {
		t.obey(r.Context(), key, resp) // before another request gets this one's unit
	}
	if h.held != nil {
		h.until(resp)
	}
	return resp, err
}

// take waits until r may be sent, or refuses it. It returns r's key ("": none) and its hold (nil:
// none).
func (t *Transport) take(r *http.Request) (key string, held *stint.Reservation, err error) {
	t.once.Do(func() {
		if t.in = &t.memory; t.Limiter != nil {
			stint.Internal(friend.Of{}).WarnUnnamed("httplimit", t.Limiter, t.limit())
			t.in = stint.Internal(friend.Of{}).WithFallback(t.Limiter)
		}
	})
	keyOf := t.Key
	if keyOf == nil {
		keyOf = host
	}
	key, err = stint.Internal(friend.Of{}).Counted(t.Anonymous, keyOf(r))
	if key == "" {
		return "", nil, err
	}
	asks := []stint.Ask{{Key: key, Limit: t.limit()}}
	if t.MaxPause > 0 {
		asks = append(asks, stint.PauseAsk(key))
	}
	held, err = stint.Internal(friend.Of{}).TakeOrWait(r.Context(), t.in, &stint.Request{Asks: asks}, t.Refuse)
	return key, held, err
}

// obey pauses key if resp asks to wait.
func (t *Transport) obey(ctx context.Context, key string, resp *http.Response) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return
	}
	if d := retryAfter(resp.Header); d > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		_ = t.in.Pause(ctx, key, min(d, t.MaxPause)) // this process knows it also after an error
	}
}

// retryAfter is the wait in the Retry-After of h, in seconds or as a date; 0: none.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	seconds, err := strconv.ParseUint(text, 10, 32)
	if err == nil || errors.Is(err, strconv.ErrRange) { // then seconds is the largest number
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date")) // by the clock of the server
	if err != nil {
		now = time.Now()
	}
	return max(0, at.Sub(now))
}

// CloseIdleConnections closes the idle connections of Base, if it can; see
// http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) limit() *stint.Limit { return stint.Internal(friend.Of{}).OrDefault(t.Limit) }

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// usualPorts are left out of keys, so that a host has one key.
var usualPorts = map[string]string{"http": ":80", "https": ":443"}

func host(r *http.Request) string {
	if r.URL == nil {
		return "" // Base returns the error
	}
	h := strings.ToLower(r.URL.Host)
	if port, ok := usualPorts[r.URL.Scheme]; ok {
		h = strings.TrimSuffix(h, port)
	}
	return h
}
