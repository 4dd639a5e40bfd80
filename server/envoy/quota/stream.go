package quota

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// inParallel is how many buckets of a stream are decided at once.
	inParallel = 16
	// perResponse is the most buckets in a response.
	perResponse = 500
	// maxDomain is the length of the longest domain, in bytes.
	maxDomain = 1024
)

// conversation is a stream while it is answered. All but receive runs in one goroutine.
type conversation struct {
	service       *Service
	stream        rlqs.RateLimitQuotaService_StreamRateLimitQuotasServer
	domain        string
	subscriptions map[string]*subscription // by the name of the bucket
	weight        int                      // of subscriptions
	queue         queue
}

func (c *conversation) run(ctx context.Context) error {
	reports, failed := make(chan *rlqs.RateLimitQuotaUsageReports), make(chan error, 1)
	go c.receive(ctx, reports, failed)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var todo []*work
		select {
		case m := <-reports:
			var err error
			if todo, err = c.read(m); err != nil {
				c.service.metrics.malformed.Inc()
				return err
			}
		case <-timer.C:
			todo = c.whatIsDue()
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-c.service.stopped:
			return errStopping
		}
		c.doAll(ctx, todo)
		if err := c.answer(todo); err != nil {
			return err
		}
		timer.Reset(c.untilDue())
	}
}

func (c *conversation) receive(ctx context.Context, to chan<- *rlqs.RateLimitQuotaUsageReports, failed chan<- error) {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			failed <- err
			return
		}
		select {
		case to <- m:
		case <-ctx.Done():
			return
		}
	}
}

// close ends all subscriptions. The proxy's unused units stay charged, because it may use them until its
// assignments expire.
func (c *conversation) close() {
	for _, s := range c.subscriptions {
		if s.work != nil { // a malformed report, or a panic, has prevented it
			s.metrics.end(s.metrics.lost, s.work.giveBack)
		}
		s.lose(s.grants)
		c.service.buckets.leave(s)
	}
}

// read accounts a report, and returns what to do about its buckets.
func (c *conversation) read(m *rlqs.RateLimitQuotaUsageReports) ([]*work, error) {
	if err := c.readDomain(m.GetDomain()); err != nil {
		return nil, err
	}
	now, set := time.Now(), c.service.decider.Rules()
	var todo []*work
	for _, r := range m.GetBucketQuotaUsages() {
		s, err := c.find(r.GetBucketId(), now)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		s.metrics.reports.Inc()
		back := s.account(now, usage{clip(r.GetNumRequestsAllowed()), clip(r.GetNumRequestsDenied())})
		if s.work == nil {
			s.work = &work{subscription: s}
			todo = append(todo, s.work)
		}
		s.work.giveBack += back
		s.work.renew = s.wants(now, set, c.service.settings.TTL)
	}
	for _, w := range todo {
		c.abandonIdle(w, now)
	}
	return todo, nil
}

// abandonIdle abandons the bucket of w if it was idle for long, and refunds its proxy's units. A request that
// the proxy allows in the meantime is never reported.
func (c *conversation) abandonIdle(w *work, now time.Time) {
	s, idle := w.subscription, c.service.settings.Idle
	switch {
	case !s.isIdle(now, idle):
	case now.Sub(s.sent) >= late:
		w.abandon = true
		w.giveBack += s.takeBack(now, s.unspent)
	case s.isIdle(now, 2*idle): // it has a new assignment at every report
		w.abandon = true
	}
}

func clip(n uint64) int64 { return int64(min(n, mostReported)) }

// readDomain reads the domain of a report, which only the first one must have.
func (c *conversation) readDomain(domain string) error {
	switch {
	case c.domain == "" && domain == "":
		return status.Error(codes.InvalidArgument, "the first report must have a domain")
	case len(domain) > maxDomain:
		return status.Errorf(codes.InvalidArgument, "domain of %d bytes: at most %d", len(domain), maxDomain)
	case c.domain == "":
		c.domain = domain
	case domain != "" && domain != c.domain:
		return status.Errorf(codes.InvalidArgument, "the domain of the stream is %q and cannot change: open another stream", c.domain)
	}
	return nil
}

// find returns the subscription to a bucket, and starts it if it is new. It returns nil if there is no room
// for it.
func (c *conversation) find(id *rlqs.BucketId, now time.Time) (*subscription, error) {
	name, entries, err := nameOf(c.domain, id)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s := c.subscriptions[name]
	if s == nil {
		b, place := c.service.buckets.join(c, name, entries)
		if b == nil {
			c.service.metrics.noBucket.Inc()
			c.service.crowded.warn(c.service.settings.Log, "rate limit quota: too many buckets: one gets no assignment",
				"domain", c.domain, "of_stream", len(c.subscriptions), "most", c.service.settings.MaxBuckets)
			return nil, nil
		}
		s = &subscription{bucket: b, room: place, metrics: c.service.metrics, id: id, due: now, faded: now}
		c.subscriptions[name] = s
		c.weight += weightOf(name)
		heap.Push(&c.queue, s)
	}
	return s, nil
}

// whatIsDue returns the renewals that are due.
func (c *conversation) whatIsDue() []*work {
	var todo []*work
	now := time.Now()
	for len(c.queue) > 0 && !c.queue[0].due.After(now) {
		s := heap.Pop(&c.queue).(*subscription)
		s.work = &work{subscription: s, renew: true}
		todo = append(todo, s.work)
	}
	for _, w := range todo {
		heap.Push(&c.queue, w.subscription)
	}
	return todo
}

// untilDue is the time until the next renewal.
func (c *conversation) untilDue() time.Duration {
	if len(c.queue) == 0 {
		return time.Hour
	}
	return max(0, time.Until(c.queue[0].due))
}

// doAll performs all of todo, and sorts the subscriptions by when they are due next.
func (c *conversation) doAll(ctx context.Context, todo []*work) {
	if len(todo) == 1 {
		c.service.do(ctx, todo[0])
	} else {
		var all sync.WaitGroup
		next, panicked := make(chan *work), make(chan any, len(todo))
		do := func(w *work) {
			defer func() {
				if p := recover(); p != nil {
					panicked <- fmt.Sprintf("%v\n%s", p, debug.Stack())
				}
			}()
			c.service.do(ctx, w)
		}
		for range min(inParallel, len(todo)) {
			all.Go(func() {
				for w := range next {
					do(w)
				}
			})
		}
		for _, w := range todo {
			next <- w
		}
		close(next)
		all.Wait()
		select {
		case p := <-panicked:
			panic(p) // here, where it ends the stream and not the process
		default:
		}
	}
	for _, w := range todo {
		s := w.subscription
		s.work = nil
		if !w.abandon {
			heap.Fix(&c.queue, s.place)
			continue
		}
		heap.Remove(&c.queue, s.place)
		delete(c.subscriptions, s.bucket.name)
		s.lose(s.grants)
		c.weight -= weightOf(s.bucket.name)
		c.service.buckets.leave(s)
	}
}

// answer sends the results of todo.
func (c *conversation) answer(todo []*work) error {
	for len(todo) > 0 {
		some := todo[:min(perResponse, len(todo))]
		todo = todo[len(some):]
		m := new(rlqs.RateLimitQuotaResponse)
		for _, w := range some {
			m.BucketAction = w.actions(m.BucketAction)
		}
		if len(m.BucketAction) == 0 {
			continue
		}
		if err := c.stream.Send(m); err != nil {
			return err
		}
		now := time.Now()
		for _, w := range some {
			w.count(c.service.metrics)
			if w.assign {
				w.subscription.sent, w.subscription.expires = now, now.Add(w.lasts)
			}
		}
	}
	return nil
}

// queue is a heap of subscriptions by when they are due.
type queue []*subscription

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	s := x.(*subscription)
	s.place = len(*q)
	*q = append(*q, s)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return last
}
