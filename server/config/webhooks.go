package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// Webhook is a receiver of messages about alerts. It does not contain a secret if URLFile and HeadersFile are
// used.
type Webhook struct {
	// Name is unique among the webhooks: 1 to 64 of A–Z a–z 0–9 _ . : / -.
	Name string
	Kind WebhookKind // the form of the messages
	// Exactly one is given: URL, or URLFile, a file with the URL. For Alertmanager it is the URL without
	// /api/v2/alerts.
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
	// Slack is the form of Slack's incoming webhooks.
	Slack
	// Alertmanager is version 2 of the API of Prometheus' Alertmanager.
	Alertmanager
)

var webhookKinds = map[string]WebhookKind{"json": JSON, "slack": Slack, "alertmanager": Alertmanager}

const maxWebhooks = 10

func (w *Webhook) rows(r *yamlnode.Reader) schema.Rows {
	return schema.Rows{
		{Name: "name", Value: schema.Text(r, &w.Name, "name").Matching(schema.Name), Required: true, Example: "ops",
			Says: "Tells webhooks apart when one fails."},
		{Name: "kind", Value: schema.Parsed(r, &w.Kind, parseWebhookKind, schema.Words("json", "slack", "alertmanager")), Required: true, Example: "slack",
			Says: "Message format: Stint's own JSON, Slack's incoming webhooks, or Alertmanager's."},
		{Name: "url", Value: schema.Parsed(r, &w.URL, ParseWebhookURL, webURL).Expanding(r), Example: "https://hooks.example.com/alerts", Instead: []string{"url_file"}, Not: []string{"url_file"}, Secret: true,
			Says: "Where to send messages; for Alertmanager, without /api/v2/alerts."},
		{Name: "url_file", Value: schema.Text(r, &w.URLFile, "file"), Example: "/etc/stint/slack", Reread: true,
			Says: "File with the URL, which may be a secret."},
		{Name: "timeout", Value: schema.Duration(r, "timeout", &w.Timeout, 100*time.Millisecond, 30*time.Second), Default: "5s",
			Says: "How long sending a message may take."},
		{Name: "headers_file", Value: schema.Text(r, &w.HeadersFile, "file"), Example: "/etc/stint/hook-headers", Reread: true,
			Says: "File with headers to send, one \"Name: value\" a line."},
		{Name: "tls", Value: readUpstreamTLS(r, &w.TLS), Example: "{ca: /etc/stint/hooks.pem}",
			Says: "Certificates for an https URL."},
	}
}

// readWebhooks is the list webhooks of the settings.
func readWebhooks(r *yamlnode.Reader, to *[]Webhook) schema.Value {
	seen := map[string]bool{}
	all := schema.Mappings(r, func(w *Webhook) schema.Rows { return w.rows(r) }, func(w *Webhook, n *yamlnode.Node, fields map[string]*yamlnode.Node) {
		w.check(r, n, fields)
		if seen[w.Name] && w.Name != "" {
			r.Report(fields["name"], "webhook %q is given twice", w.Name)
		}
		seen[w.Name] = true
		*to = append(*to, *w)
	})
	return schema.Custom(all.Shape, func(n *yamlnode.Node) {
		if len(n.Content) > maxWebhooks {
			r.Report(n, "%d webhooks: at most %d", len(n.Content), maxWebhooks)
			return
		}
		all.Read(n)
	})
}

func (w *Webhook) check(r *yamlnode.Reader, n *yamlnode.Node, fields map[string]*yamlnode.Node) {
	switch {
	case fields["name"] == nil:
		r.Report(n, "the webhook has no name: errors show it")
	case !rules.IsName(w.Name):
		r.Report(fields["name"], "name %.70q: must be 1 to 64 of A-Z a-z 0-9 _ . : / -", w.Name)
	}
	if fields["kind"] == nil {
		r.Report(n, "the webhook has no kind: one of json, slack, alertmanager")
	}
	if (fields["url"] == nil) == (w.URLFile == "") {
		r.Report(n, "a webhook needs one of url and url_file, a file with the URL")
	}
	if w.TLS != nil && strings.HasPrefix(w.URL, "http:") {
		r.Report(fields["tls"], "tls is for a url of https")
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
