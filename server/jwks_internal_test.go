package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/claims"
	"github.com/stintdev/stint/server/internal/claims/claimstest"
)

// provider is where keys are fetched, without a network.
type provider struct {
	mu      sync.Mutex
	answer  answering
	fetched []time.Duration // when, after start
	start   time.Time
}

// answering is what a provider says when it is asked.
type answering func() (status int, body io.Reader, err error)

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.fetched = append(p.fetched, time.Since(p.start))
	answer := p.answer
	p.mu.Unlock()
	status, body, err := answer()
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(body), Header: http.Header{}, Request: r}, nil
}

func (p *provider) answers(how answering) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = how
}

func (p *provider) gives(data []byte) {
	p.answers(func() (int, io.Reader, error) { return http.StatusOK, bytes.NewReader(data), nil })
}

// asked is when it was asked, after the start; which is now from then on.
func (p *provider) asked() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.fetched
	p.fetched, p.start = nil, time.Now()
	return all
}

// fetching is a Server that follows p until the test ends.
func fetching(t *testing.T, p *provider) (*Server, *journal) {
	t.Helper()
	settings := config.Default()
	settings.JWT = &config.JWT{KeysURL: "https://id.example.com/jwks"}
	log := new(journal)
	s := New(Config{Settings: settings, Rules: parsed(t, byClaims), Log: slog.New(slog.NewTextHandler(log, nil))})
	s.claims.Client.Transport = p
	p.asked()
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.Follow(ctx)
	t.Cleanup(func() { cancel(); s.Close(); synctest.Wait() })
	return s, log
}

// Keys are there when Follow returns, and are fetched every 15 minutes, or soon after a
// token names one that is not known, but never more often than every 30 s.
func TestKeysAreFetched(t *testing.T) {
	keys := claimstest.Keys()
	synctest.Test(t, func(t *testing.T) {
		p := &provider{}
		p.gives(claimstest.JWKS(t, keys["ES256"]))
		s, _ := fetching(t, p)
		known, later := "Bearer "+keys["ES256"].Sign(t, `{"sub":"ann"}`), "Bearer "+keys["EdDSA"].Sign(t, `{"sub":"bob"}`)
		if got := whose(t, s, known); got != "user ann" {
			t.Fatal(got)
		}
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		if got, want := fmt.Sprint(p.asked()), "[0s 15m0s 30m0s]"; got != want {
			t.Errorf("fetched at %s, want %s", got, want)
		}
		p.gives(claimstest.JWKS(t, keys["ES256"], keys["EdDSA"]))
		if got := whose(t, s, later); got != nobody { // nobody waits for the keys
			t.Error(got)
		}
		time.Sleep(time.Second)
		if got := whose(t, s, later); got != "user bob" {
			t.Error(got)
		}
		p.asked()
		other := *keys["EdDSA"]
		for i := range 3000 { // 5 minutes of keys that nobody has
			other.ID = fmt.Sprint(i)
			whose(t, s, "Bearer "+other.Sign(t, `{"sub":"eve"}`))
			time.Sleep(100 * time.Millisecond)
		}
		if all := p.asked(); len(all) < 5 || len(all) > 10 {
			t.Errorf("fetched %d times in 5 minutes: %v", len(all), all)
		}
		if whose(t, s, known) != "user ann" || whose(t, s, later) != "user bob" {
			t.Error("keys were lost")
		}
	})
}

// Where keys cannot be fetched, the previous ones stay; it is tried again, and said once.
func TestKeysThatCannotBeFetched(t *testing.T) {
	keys := claimstest.Keys()
	synctest.Test(t, func(t *testing.T) {
		p := &provider{}
		fails := func() (int, io.Reader, error) { return 0, nil, errors.New("no route to host") }
		p.answers(fails)
		s, log := fetching(t, p)
		token := "Bearer " + keys["RS256"].Sign(t, `{"sub":"ann"}`)
		if got := whose(t, s, token); got != nobody {
			t.Error(got)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got, want := fmt.Sprint(p.asked()), "[0s 1s 3s 7s]"; got != want {
			t.Errorf("fetched at %s, want %s", got, want)
		}
		if n := strings.Count(log.String(), "no route to host"); n != 1 {
			t.Errorf("said %d times", n)
		}
		p.gives(claimstest.JWKS(t, keys["RS256"]))
		time.Sleep(30 * time.Second)
		if got := whose(t, s, token); got != "user ann" {
			t.Error(got)
		}
		for name, answer := range map[string]func() (int, io.Reader, error){
			"away":     fails,
			"an error": func() (int, io.Reader, error) { return http.StatusInternalServerError, strings.NewReader("{}"), nil },
			"empty":    func() (int, io.Reader, error) { return http.StatusOK, strings.NewReader(`{"keys":[]}`), nil },
			"a page":   func() (int, io.Reader, error) { return http.StatusOK, strings.NewReader(`<html>`), nil },
			"endless":  func() (int, io.Reader, error) { return http.StatusOK, endless{}, nil },
			"symmetric": func() (int, io.Reader, error) {
				return http.StatusOK, strings.NewReader(`{"keys":[{"kty":"oct","kid":"r1","k":"c2VjcmV0"}]}`), nil
			},
		} {
			p.answers(answer)
			time.Sleep(claims.FetchEvery)
			synctest.Wait()
			if got := whose(t, s, token); got != "user ann" {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
}

// A provider that does not answer keeps nobody waiting: Follow a second, requests not.
func TestKeysThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{}
		hold := make(chan struct{})
		p.answers(func() (int, io.Reader, error) { <-hold; return 0, nil, errors.New("over") })
		start := time.Now()
		s, _ := fetching(t, p)
		if took := time.Since(start); took != claims.FirstWait {
			t.Errorf("Follow took %v", took)
		}
		start = time.Now()
		if got := whose(t, s, "Bearer "+claimstest.Keys()["RS256"].Sign(t, `{"sub":"ann"}`)); got != nobody || time.Since(start) != 0 {
			t.Errorf("%s after %v", got, time.Since(start))
		}
		close(hold)
	})
}

// Over a network, keys are followed to where they have moved, but from https to http.
func TestKeysOverHTTP(t *testing.T) {
	key := claimstest.Keys()["EdDSA"]
	keys := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(claimstest.JWKS(t, key)) })
	plain := httptest.NewServer(keys)
	defer plain.Close()
	for name, c := range map[string]struct {
		from *httptest.Server
		want string
	}{
		"plain":              {httptest.NewServer(keys), "user ann"},
		"moved":              {httptest.NewServer(http.RedirectHandler(plain.URL, http.StatusFound)), "user ann"},
		"by TLS":             {httptest.NewTLSServer(keys), "user ann"},
		"moved out of TLS":   {httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound)), nobody},
		"gone":               {httptest.NewServer(http.NotFoundHandler()), nobody},
		"of another's cert.": {httptest.NewTLSServer(keys), nobody},
	} {
		settings := config.Default()
		settings.JWT = &config.JWT{KeysURL: c.from.URL}
		s := New(Config{Settings: settings, Rules: parsed(t, byClaims), Log: slog.New(slog.DiscardHandler)})
		if c.from.TLS != nil && name != "of another's cert." {
			s.claims.Client.Transport.(*http.Transport).TLSClientConfig = c.from.Client().Transport.(*http.Transport).TLSClientConfig
		}
		s.claims.Follow(t.Context())
		if got := whose(t, s, "Bearer "+key.Sign(t, `{"sub":"ann"}`)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		s.Close()
		c.from.Close()
	}
}

// journal is a log that many write.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }
