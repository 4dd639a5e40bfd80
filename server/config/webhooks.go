package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// Webhook is where messages about alerts are sent. It does not hold a secret if URLFile and
// HeadersFile are used.
type Webhook struct {
	// Name is unique among the webhooks: 1 to 64 of A–Z a–z 0–9 _ . : / -.
	Name string
	Kind WebhookKind // what the messages look like
	// One of URL and URLFile, a file with the URL, is given. For Alertmanager it is the URL
	// without /api/v2/alerts.
	URL, URLFile string
	// Timeout is how long a message may take, 100 ms to 30 s.
	Timeout time.Duration
	// HeadersFile is a file with headers that are sent, a line "Name: value" each. Empty:
	// none.
	HeadersFile string
	// TLS is for a URL of https. nil: the system's authorities must have signed the
	// receiver's certificate, and Stint presents none.
	TLS *UpstreamTLS
}

// WebhookKind is the form of the messages.
type WebhookKind uint8

const (
	// JSON is a form of Stint's own.
	JSON WebhookKind = iota + 1
	// Slack is that of Slack's incoming webhooks.
	Slack
	// Alertmanager is version 2 of the API of Prometheus' Alertmanager.
	Alertmanager
)

var webhookKinds = map[string]WebhookKind{"json": JSON, "slack": Slack, "alertmanager": Alertmanager}

const (
	maxWebhooks           = 10
	defaultWebhookTimeout = 5 * time.Second
)

// readWebhooks makes a reader of the settings' "webhooks".
func readWebhooks(r *yamlnode.Reader, to *[]Webhook) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if len(n.Content) > maxWebhooks {
			r.Report(n, "%d webhooks: at most %d", len(n.Content), maxWebhooks)
			return
		}
		seen := map[string]bool{}
		r.Each(n, func(n *yamlnode.Node) {
			w := Webhook{Timeout: defaultWebhookTimeout}
			fields := r.Mapping(n, yamlnode.Fields{
				"name":         r.Text(&w.Name),
				"kind":         yamlnode.Parsed(r, &w.Kind, parseWebhookKind),
				"url":          yamlnode.Parsed(r, &w.URL, ParseWebhookURL),
				"url_file":     r.Text(&w.URLFile),
				"timeout":      r.Period(&w.Timeout),
				"headers_file": r.Text(&w.HeadersFile),
				"tls":          readUpstreamTLS(r, &w.TLS),
			})
			if fields == nil {
				return
			}
			w.check(r, n, fields)
			if seen[w.Name] && w.Name != "" {
				r.Report(fields["name"], "webhook %q is given twice", w.Name)
			}
			seen[w.Name] = true
			*to = append(*to, w)
		})
	}
}

func (w *Webhook) check(r *yamlnode.Reader, n *yamlnode.Node, fields map[string]*yamlnode.Node) {
	switch {
	case fields["name"] == nil:
		r.Report(n, "the webhook has no name: it is shown where it fails")
	case !rules.IsName(w.Name):
		r.Report(fields["name"], "name %.70q: must be 1 to 64 of A-Z a-z 0-9 _ . : / -", w.Name)
	}
	if fields["kind"] == nil {
		r.Report(n, "the webhook has no kind: one of json, slack, alertmanager")
	}
	if (fields["url"] == nil) == (fields["url_file"] == nil) {
		r.Report(n, "a webhook needs one of url and url_file, a file with the URL")
	}
	if w.TLS != nil && strings.HasPrefix(w.URL, "http:") {
		r.Report(fields["tls"], "tls is for a url of https")
	}
	if w.Timeout < 100*time.Millisecond || w.Timeout > 30*time.Second {
		r.Report(fields["timeout"], "timeout must be 100ms to 30s")
	}
}

func parseWebhookKind(text string) (WebhookKind, error) {
	if kind := webhookKinds[text]; kind != 0 {
		return kind, nil
	}
	return 0, fmt.Errorf("unknown kind %.60q: one of json, slack, alertmanager", text)
}

// ParseWebhookURL checks the URL of a webhook. The error does not contain it, because it may
// be a secret.
func ParseWebhookURL(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", errors.New("want the URL of a webhook, such as https://hooks.example.com/alerts")
	case u.User != nil:
		return "", errors.New("the URL of a webhook has a user or password in it: give a header Authorization in headers_file")
	case u.Fragment != "":
		return "", errors.New("the URL of a webhook has a fragment (#), which is never sent")
	}
	return text, nil
}

// HeadersInTheClear reports whether headers from HeadersFile, which may be secret, are sent to
// another machine unencrypted. It does not read URLFile.
func (w *Webhook) HeadersInTheClear() bool { return headersInTheClear(w.URL, w.HeadersFile) }
