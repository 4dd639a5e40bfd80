package quota_test

import (
	"context"
	"io"
	"sync"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/metadata"

	"github.com/stintdev/stint/server/envoy/quota"
)

// wire is a stream between a proxy and a Service: in order, with a delay each way.
type wire struct {
	delay  func() time.Duration // one way
	ctx    context.Context
	cancel context.CancelFunc

	mu   sync.Mutex
	up   []sentReport
	down []sentResponse
	wake chan struct{}
	done chan struct{} // the service has ended the stream
	err  error         // how
}

type sentReport struct {
	m  *rlqs.RateLimitQuotaUsageReports
	at time.Time // when it arrives
}

type sentResponse struct {
	m        *rlqs.RateLimitQuotaResponse
	sent, at time.Time
}

// dial opens a stream to s.
func dial(s *quota.Service, delay func() time.Duration) *wire {
	w := &wire{delay: delay, wake: make(chan struct{}, 1), done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	go func() {
		w.err = s.StreamRateLimitQuotas(w)
		w.cancel()
		close(w.done)
	}()
	return w
}

// send sends a report.
func (w *wire) send(m *rlqs.RateLimitQuotaUsageReports) error {
	if w.ctx.Err() != nil {
		return io.EOF
	}
	w.mu.Lock()
	at := time.Now().Add(w.delay())
	if n := len(w.up); n > 0 && at.Before(w.up[n-1].at) {
		at = w.up[n-1].at
	}
	w.up = append(w.up, sentReport{clone(m), at})
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

// arrived returns the responses that have arrived.
func (w *wire) arrived() (all []sentResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for now := time.Now(); len(w.down) > 0 && !w.down[0].at.After(now); w.down = w.down[1:] {
		all = append(all, w.down[0])
	}
	return all
}

// onTheWay returns how many units are in responses that have not arrived.
func (w *wire) onTheWay() (n float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.down {
		for _, a := range r.m.GetBucketAction() {
			n += float64(a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket().GetMaxTokens())
		}
	}
	return n
}

// cut breaks the stream: what is on its way is lost.
func (w *wire) cut() { w.cancel(); <-w.done }

// Recv implements the server's side of the stream.
func (w *wire) Recv() (*rlqs.RateLimitQuotaUsageReports, error) {
	for {
		w.mu.Lock()
		var first *sentReport
		if len(w.up) > 0 {
			first = &w.up[0]
		}
		w.mu.Unlock()
		wait := time.Hour
		if first != nil {
			if wait = time.Until(first.at); wait <= 0 {
				w.mu.Lock()
				w.up = w.up[1:]
				w.mu.Unlock()
				return first.m, nil
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-w.wake:
		case <-timer.C:
		case <-w.ctx.Done():
			timer.Stop()
			return nil, w.ctx.Err()
		}
		timer.Stop()
	}
}

// Send implements the server's side of the stream.
func (w *wire) Send(m *rlqs.RateLimitQuotaResponse) error {
	if w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	at := now.Add(w.delay())
	if n := len(w.down); n > 0 && at.Before(w.down[n-1].at) {
		at = w.down[n-1].at
	}
	w.down = append(w.down, sentResponse{clone(m), now, at})
	return nil
}

func (w *wire) Context() context.Context     { return w.ctx }
func (w *wire) SetHeader(metadata.MD) error  { return nil }
func (w *wire) SendHeader(metadata.MD) error { return nil }
func (w *wire) SetTrailer(metadata.MD)       {}
func (w *wire) SendMsg(any) error            { panic("not used") }
func (w *wire) RecvMsg(any) error            { panic("not used") }
