package alerts

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

func put(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func message() *Message {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	value := 0.25
	return &Message{At: at, Items: []Item{
		{Name: "blocked", Severity: "critical", When: `block_rate("login") > 0.1`, Text: "<!channel> & co", Value: &value, Fired: at, Labels: map[string]string{"team": "web"}},
		{Name: "store", Severity: "warning", When: "store_error_rate() > 0", Fired: at, Resolved: at.Add(time.Minute)},
		{Name: "near", Severity: "warning", When: "usage > 80% of login", Fired: at, More: 7, Keys: []ItemKey{
			{Rule: "login", Limit: "10 per 1h", Key: "ann`\n<@U1>\x1b[2J", Usage: 0.9, At: at, Until: at.Add(time.Hour)},
		}},
	}}
}

// A message in the forms json and slack, with what a receiver needs to tell one that comes twice.
func TestMessageForms(t *testing.T) {
	var body []byte
	var header http.Header
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		header = r.Header
	}))
	defer s.Close()
	send := func(kind config.WebhookKind) string {
		t.Helper()
		w := NewWebhook(config.Webhook{Name: "w", Kind: kind, URL: s.URL, Timeout: 10 * time.Second}, nil, "shop")
		if _, err := w.Send(t.Context(), message()); err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	want := `{"at":"2026-03-01T12:00:00Z","from":"shop","alerts":[` +
		`{"name":"blocked","state":"firing","severity":"critical","labels":{"team":"web"},"when":"block_rate(\"login\") \u003e 0.1","message":"\u003c!channel\u003e \u0026 co","value":0.25,"fired_at":"2026-03-01T12:00:00Z"},` +
		`{"name":"store","state":"resolved","severity":"warning","when":"store_error_rate() \u003e 0","fired_at":"2026-03-01T12:00:00Z","resolved_at":"2026-03-01T12:01:00Z"},` +
		`{"name":"near","state":"firing","severity":"warning","when":"usage \u003e 80% of login","fired_at":"2026-03-01T12:00:00Z","keys":[{"rule":"login","limit":"10 per 1h","key":"ann` + "`" + `\n\u003c@U1\u003e\u001b[2J","usage":0.9,"at":"2026-03-01T12:00:00Z","until":"2026-03-01T13:00:00Z"}],"more_keys":7}]}`
	if got := send(config.JSON); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	id := header.Get("Stint-Message")
	if send(config.JSON); len(id) != 16 || header.Get("Stint-Message") != id || header.Get("Content-Type") != "application/json" {
		t.Errorf("ID %q, then %q", id, header)
	}
	var text struct{ Text string }
	if err := json.Unmarshal([]byte(send(config.Slack)), &text); err != nil {
		t.Fatal(err)
	}
	const slack = "*FIRING* blocked (critical): &lt;!channel&gt; &amp; co\n`block_rate(\"login\") &gt; 0.1`, now 0.25\nsince 2026-03-01T12:00:00Z, shop\n" +
		"*RESOLVED* store (warning)\n`store_error_rate() &gt; 0`\nsince 2026-03-01T12:00:00Z until 2026-03-01T12:01:00Z, shop\n" +
		"*FIRING* near (warning)\n`usage &gt; 80% of login`\n`ann' &lt;@U1&gt; [2J` has used 90 % of login: 10 per 1h\nand 7 more keys, shop"
	if text.Text != slack {
		t.Errorf("got\n%s\nwant\n%s", text.Text, slack)
	}
}

// A message to Slack is bounded, however many alerts and keys there are.
func TestSlackIsBounded(t *testing.T) {
	m := &Message{}
	for range mostItems {
		i := Item{Name: strings.Repeat("n", 64), Text: strings.Repeat("<", 500), When: strings.Repeat("&", 4096)}
		for range mostItemKeys {
			i.Keys = append(i.Keys, ItemKey{Key: rules.Key(strings.Repeat("<", 4096)), Rule: "r", Limit: "l"})
		}
		m.Items = append(m.Items, i)
	}
	if n := len(m.slack("shop")); n > 2*mostSlackText {
		t.Errorf("%d bytes", n)
	}
	if text := m.slack("shop"); !strings.HasSuffix(text, fmt.Sprintf("and %d more alerts", mostItems-strings.Count(text, "*FIRING*"))) {
		t.Errorf("…%s", text[len(text)-100:])
	}
}

// Files are read at each message. Headers are sent; the URL is that of the file.
func TestWebhookFiles(t *testing.T) {
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer s.Close()
	w := NewWebhook(config.Webhook{
		Name: "w", Kind: config.JSON, Timeout: 10 * time.Second,
		URLFile:     put(t, s.URL+"/T0/secret\n"),
		HeadersFile: put(t, "# for the receiver\nAuthorization: Bearer geheim\n\nx-a: b\n"),
	}, nil, "shop")
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Send(t.Context(), message()); err != nil || got.Get("Authorization") != "Bearer geheim" || got.Get("X-A") != "b" {
		t.Errorf("%v, %q", err, got)
	}
	if err := os.WriteFile(w.HeadersFile, []byte("Authorization: Bearer neu"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Send(t.Context(), message()); err != nil || got.Get("Authorization") != "Bearer neu" {
		t.Errorf("%v, %q", err, got)
	}
}

// What fails says why, and tells no secret: not the URL, no header, nothing of the answer.
func TestWebhookFails(t *testing.T) {
	hang := make(chan struct{})
	var redirected bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/redirect"):
			http.Redirect(w, r, "/geheim/elsewhere", http.StatusTemporaryRedirect)
		case strings.HasSuffix(r.URL.Path, "/elsewhere"):
			redirected = true
		case strings.HasSuffix(r.URL.Path, "/hang"):
			<-hang
		case strings.HasSuffix(r.URL.Path, "/busy"):
			w.Header().Set("Retry-After", "77")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, "geheim\x1b[2J")
		case strings.HasSuffix(r.URL.Path, "/broken"):
			c, b, _ := w.(http.Hijacker).Hijack()
			_, _ = b.WriteString("HTTP/1.1 \x1b[2J broken\r\n\r\n")
			_ = b.Flush()
			c.Close()
		}
	}))
	defer s.Close()
	defer close(hang) // before s waits for its handlers
	for _, c := range []struct {
		url, urlFile, headers string
		want                  string
		retry                 time.Duration
	}{
		{url: "/redirect", want: "webhook redirected (307)"},
		{url: "/hang", want: "context deadline exceeded"},
		{url: "/busy", want: "it answered 429 Too Many Requests", retry: 77 * time.Second},
		{url: "/broken", want: "malformed HTTP"},
		{urlFile: "geheim://x", want: "want the URL of a webhook"},
		{urlFile: "https://geheim:geheim@x", want: "has a user or password in it"},
		{url: "/ok", headers: "Authorization geheim", want: "line 1: want Name: value"},
		{url: "/ok", headers: "A: b\nContent-Length: 5", want: "line 2: the header Content-Length belongs to the protocol"},
		{url: "/ok", headers: "A: b\x01geheim", want: "line 1: want Name: value"},
	} {
		w := NewWebhook(config.Webhook{Name: "w", Kind: config.JSON, URL: s.URL + "/geheim" + c.url, Timeout: 200 * time.Millisecond}, nil, "shop")
		if c.url != "/hang" {
			w.Timeout = 10 * time.Second
		}
		if c.urlFile != "" {
			w.URLFile = put(t, c.urlFile)
		}
		if c.headers != "" {
			w.HeadersFile = put(t, c.headers)
		}
		retry, err := w.Send(t.Context(), message())
		if err == nil || !strings.Contains(err.Error(), c.want) || retry != c.retry {
			t.Errorf("%+v: %v, %s", c, err, retry)
		}
		if err != nil && (strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%+v tells a secret: %v", c, err)
		}
		if bad := c.urlFile + c.headers; bad != "" && w.Check() == nil {
			t.Errorf("%+v: Check finds nothing", c)
		}
	}
	if redirected {
		t.Error("a redirect was followed")
	}
}
