package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/stintdev/stint/server/adminapi"
)

// reconnectAfter is how long a stream that was lost waits before it is opened again.
const reconnectAfter = 2 * time.Second

var errStreamEnded = errors.New("the stream of the admin API ended")

// stream calls got with the data of each event, until ctx is done, got returns an error, or the
// stream ends. Each event must come within the timeout.
func (a *admin) stream(ctx context.Context, path string, got func(data []byte) error) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(a.timeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	r, err := a.request(ctx, apiRequest{method: http.MethodGet, path: path}, "text/event-stream")
	if err != nil {
		return err
	}
	client := *a.client
	client.Timeout = 0 // which is for the whole stream
	failed := func(err error) error {
		if outer.Err() == nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return fmt.Errorf("no answer from the admin API at %s: none within %v; --timeout gives it longer", a.base, a.timeout)
		}
		return a.unreached(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return a.refused(resp, data)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			late.Reset(a.timeout)
			if err := got(data); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return failed(err)
	}
	return errStreamEnded
}

// live calls got with each Live and its JSON, until ctx is done or got returns an error. It opens
// a stream again that is lost, and calls lost with the reason first. If the first stream cannot be
// opened, or the server refuses one, it returns that error.
func (a *admin) live(ctx context.Context, path string, got func(now *adminapi.Live, data []byte) error, lost func(error)) error {
	first := true
	var stopped error
	for {
		err := a.stream(ctx, path, func(data []byte) error {
			first = false
			now, err := read[adminapi.Live](data)
			if err == nil {
				err = got(&now, data)
			}
			stopped = err
			return err
		})
		var refused *refusal
		switch {
		case stopped != nil:
			return stopped
		case ctx.Err() != nil:
			return nil
		case first, errors.As(err, &refused) && refused.answer.Status != http.StatusServiceUnavailable:
			return err
		}
		lost(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reconnectAfter):
		}
	}
}
