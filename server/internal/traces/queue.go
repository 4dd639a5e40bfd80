package traces

import (
	"context"
	"sync/atomic"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/stintdev/stint/server/config"
)

// queue is the SDK's queue of spans, with counts and a bound that includes spans that are being sent. The SDK
// drops spans without counting them, and prints errors of exporters to standard error.
type queue struct {
	sdk.SpanProcessor
	client  sdk.SpanExporter
	waiting atomic.Int64
	o       *Options
}

func newQueue(client sdk.SpanExporter, o *Options) *queue {
	q := &queue{client: client, o: o}
	q.SpanProcessor = sdk.NewBatchSpanProcessor(sender{q},
		sdk.WithMaxQueueSize(config.MaxSpans), sdk.WithMaxExportBatchSize(batchSize),
		sdk.WithBatchTimeout(sendEvery), sdk.WithExportTimeout(retryTimeout))
	return q
}

// OnEnd implements sdk.SpanProcessor. It never waits.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > config.MaxSpans {
		q.waiting.Add(-1)
		q.o.Dropped(1)
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// sender sends the spans of the SDK's queue.
type sender struct{ q *queue }

// ExportSpans implements sdk.SpanExporter.
func (s sender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := s.q.client.ExportSpans(ctx, spans)
	s.q.waiting.Add(-int64(len(spans)))
	if err != nil {
		s.q.o.Failed(len(spans), err)
		return nil
	}
	s.q.o.Sent(len(spans))
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (s sender) Shutdown(ctx context.Context) error { return s.q.client.Shutdown(ctx) }
