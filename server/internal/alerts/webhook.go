package alerts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
)

// Webhook is a receiver of messages. It may be used from many goroutines at once.
type Webhook struct {
	config.Webhook
	// From names the sender: the namespace of the fleet.
	From   string
	client http.Client
}

// NewWebhook returns a Webhook that sends by transport. It reads its files when it sends a
// message, so new content takes effect at once.
func NewWebhook(s config.Webhook, transport http.RoundTripper, from string) *Webhook {
	return &Webhook{Webhook: s, From: from, client: http.Client{
		Transport: transport,
		// A redirect could send the headers elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// again is after how long a firing alert is sent again; 0: never. Alertmanager resolves alerts that are not
// sent again.
func (w *Webhook) again() time.Duration {
	if w.Kind == config.Alertmanager {
		return alertmanagerAgain
	}
	return 0
}

// Check reads the files of w, and returns an error if one is wrong.
func (w *Webhook) Check() error {
	_, _, err := w.files()
	return err
}

// files returns the URL and the headers of the files.
func (w *Webhook) files() (to string, headers http.Header, err error) {
	to = w.URL
	if w.URLFile != "" {
		text, err := readfile.UpTo(w.URLFile, 8<<10)
		if err != nil {
			return "", nil, fmt.Errorf("url_file: %w", err)
		}
		if to, err = config.ParseWebhookURL(strings.TrimSpace(string(text))); err != nil {
			return "", nil, fmt.Errorf("url_file %s: %w", w.URLFile, err)
		}
	}
	headers = http.Header{}
	if w.HeadersFile != "" {
		text, err := readfile.UpTo(w.HeadersFile, 64<<10)
		if err != nil {
			return "", nil, fmt.Errorf("headers_file: %w", err)
		}
		if headers, err = config.ParseHeaders(text); err != nil {
			return "", nil, fmt.Errorf("headers_file %s: %w", w.HeadersFile, err)
		}
	}
	return to, headers, nil
}

// Send sends a message once. retry is how long the receiver asks to wait after a failure; 0: not given.
// Errors contain neither the URL nor headers, which may be secrets.
func (w *Webhook) Send(ctx context.Context, m *Message) (retry time.Duration, err error) {
	to, headers, err := w.files()
	if err != nil {
		return 0, err
	}
	body, err := w.encode(m)
	if err != nil {
		return 0, err
	}
	if w.Kind == config.Alertmanager {
		to = strings.TrimRight(to, "/") + "/api/v2/alerts"
	}
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("its URL is not valid")
	}
	r.Header = headers
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "stint")
	r.Header.Set("Stint-Message", m.id(w.Name))
	resp, err := w.client.Do(r)
	if err != nil {
		return 0, withoutURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return 0, nil
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return 0, fmt.Errorf("webhook redirected (%d); configure the final URL", resp.StatusCode)
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		retry = time.Duration(min(seconds, 3600)) * time.Second
	}
	return retry, fmt.Errorf("it answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}

// withoutURL returns a client's error without the URL of the request, and without unprintable characters,
// because a part may come from the receiver.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return errors.New(plain(err.Error(), 300))
}
