package lists

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// openTimeout bounds the first fetches, which a start waits for, and fetchTimeout each later one.
	openTimeout  = 5 * time.Second
	fetchTimeout = time.Minute
	// firstRetry is the time to the second attempt after a failure, or the period of the list if that is
	// shorter. It doubles for each further attempt, up to the period.
	firstRetry = time.Minute
)

// Open reads all files, and returns an error if one is wrong. Then it fetches each URL once, for 5 seconds
// at most. A URL that cannot be fetched leaves its list empty, until Run has fetched it: somebody else's
// server must not keep this one from starting. Open must not run concurrently with Reload or Run.
func (r *Reader) Open() error {
	if _, err := r.Reload(true); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	var fetching sync.WaitGroup
	for _, l := range r.all {
		if l.URL != "" {
			fetching.Go(func() { r.fetch(ctx, l) })
		}
	}
	fetching.Wait()
	return nil
}

// Run fetches each URL again after its period, until ctx is done. Call it once.
func (r *Reader) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, l := range r.all {
		if l.URL != "" {
			running.Go(func() { r.follow(ctx, l) })
		}
	}
	running.Wait()
}

func (r *Reader) follow(ctx context.Context, l *list) {
	for retry := firstRetry; ; {
		wait := l.Reload
		switch tried, failed := l.state(); {
		case !tried: // nobody has called Open
			wait = 0
		case failed:
			wait = min(retry, l.Reload)
			retry = 2 * wait
		default:
			retry = firstRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(jittered(wait)):
		}
		attempt, cancel := context.WithTimeout(ctx, fetchTimeout)
		r.fetch(attempt, l)
		cancel()
	}
}

// jittered is d, give or take a tenth: the instances of a fleet should not all ask at once.
func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
}

// inForce returns how many networks are in force, and why there may be others by now.
func (l *list) inForce() (networks int, failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.networks, l.failure
}

// state reports whether the source was ever asked, and whether it failed when it last was.
func (l *list) state() (tried, failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken || l.failure != nil, l.failure != nil
}

// fetch fetches a URL once. If it fails, the previous networks stay in force.
func (r *Reader) fetch(ctx context.Context, l *list) {
	_, before := l.inForce()
	changed, err := r.tryFetch(ctx, l)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled): // the server stops
	case err != nil:
		l.failed(err)
		if before == nil || before.Error() != err.Error() {
			networks, _ := l.inForce()
			r.log.Error("list not taken; the networks in force stay", "list", l.Name, "networks", networks, "error", err)
		}
	case changed || before != nil:
		networks, _ := l.inForce()
		r.log.Info("list taken", "list", l.Name, "networks", networks)
	}
}

// tryFetch fetches a URL, and takes its networks if they have changed.
func (r *Reader) tryFetch(ctx context.Context, l *list) (changed bool, err error) {
	resp, err := r.ask(ctx, l)
	if err != nil {
		return false, fmt.Errorf("%s: %w", l.source, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified && (l.etag != "" || l.modified != "") {
		l.confirmAgain()
		return false, nil
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s: status %s", l.source, resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes+1))
	if err != nil {
		return false, fmt.Errorf("%s: %w", l.source, err)
	}
	if len(data) > maxBytes {
		return false, fmt.Errorf("%s: larger than %d MiB", l.source, maxBytes>>20)
	}
	digest := sha256.Sum256(data)
	if l.taken && digest == l.digest {
		l.confirmAgain()
	} else {
		if err := r.take(l, data); err != nil {
			return false, err
		}
		changed = true
	}
	l.digest, l.etag, l.modified = digest, resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	return changed, nil
}

// ask sends the request for a URL, whose error contains no query.
func (r *Reader) ask(ctx context.Context, l *list) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL, nil)
	if err == nil {
		req.Header.Set("Accept", "text/plain, application/json, */*;q=0.5")
		if l.etag != "" {
			req.Header.Set("If-None-Match", l.etag)
		}
		if l.modified != "" {
			req.Header.Set("If-Modified-Since", l.modified)
		}
		var resp *http.Response
		if resp, err = r.client.Do(req); err == nil {
			return resp, nil
		}
	}
	if withURL, ok := errors.AsType[*url.Error](err); ok {
		err = withURL.Err
	}
	return nil, err
}

// confirmAgain records that the source has the networks in force, whatever it had in between.
func (l *list) confirmAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.confirmed, l.failure = time.Now(), nil
}
