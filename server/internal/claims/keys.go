package claims

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
)

// keySet is the keys of a JWK Set that can verify signatures.
type keySet []jose.JSONWebKey

// mostKeys is how many keys a JWK Set may have.
const mostKeys = 100

// readKeys reads a JWK Set. It skips keys for other uses, or of an unknown kind. Private keys are errors,
// because they should not be there; so are symmetric keys, which must not verify anything.
func readKeys(data []byte) (keySet, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil || set.Keys == nil {
		return nil, errors.New(`not a JWK Set: want a JSON object such as {"keys": [...]}`)
	}
	if len(set.Keys) > mostKeys {
		return nil, fmt.Errorf("%d keys: at most %d", len(set.Keys), mostKeys)
	}
	var keys keySet
	for i, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(raw, &key); err != nil {
			continue
		}
		switch key.Key.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey:
			if key.Use == "" || key.Use == "sig" {
				keys = append(keys, key)
			}
		default:
			return nil, fmt.Errorf("key %d is secret: want public keys only", i+1)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no key for any of the algorithms " + strings.Join(config.JWTAlgorithms(), ", "))
	}
	return keys, nil
}

var errUnknownKey = errors.New("it names an unknown key")

// find returns the key for a token: the key that it names or, if it names none, the only one that fits.
func (s keySet) find(id, algorithm string) (any, error) {
	var found any
	known := false
	for i := range s {
		key := &s[i]
		if id != "" && key.KeyID != id {
			continue
		}
		known = true
		switch {
		case !fits(key, algorithm):
		case found != nil:
			return nil, errors.New("several keys match it")
		default:
			found = key.Key
		}
	}
	switch {
	case found != nil:
		return found, nil
	case known:
		return nil, errors.New("its algorithm does not match its key")
	}
	return nil, errUnknownKey
}

// fits reports whether a key is for an algorithm.
func fits(key *jose.JSONWebKey, algorithm string) bool {
	if key.Algorithm != "" && key.Algorithm != algorithm {
		return false
	}
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[k.Curve.Params().BitSize] == algorithm
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}

// takeKeys makes the keys in data the current ones, and reports whether they have changed.
func (t *Reader) takeKeys(data []byte) (changed bool, err error) {
	digest := sha256.Sum256(data)
	if before := t.keys.Load(); before != nil && before.digest == digest {
		return false, nil
	}
	keys, err := readKeys(data)
	if err != nil {
		return false, err
	}
	t.keys.Store(&keyring{keySet: keys, digest: digest})
	return true, nil
}

// Reload reads the file of keys, if there is one, and it has changed or always is true. It must not run
// concurrently.
func (t *Reader) Reload(always bool) (changed bool, err error) {
	if t == nil || t.KeysFile == "" {
		return false, nil
	}
	contents, changed, err := t.file.Read()
	if !changed && !always {
		return false, nil
	}
	if err == nil {
		if changed, err = t.takeKeys(contents[0]); err != nil {
			err = fmt.Errorf("%s: %w", t.KeysFile, err)
		}
	}
	return changed, err
}

const (
	// keysTimeout bounds one attempt to fetch keys.
	keysTimeout = 10 * time.Second
	// FetchEvery is the interval between fetches of KeysURL, and keysPause the shortest interval, even if
	// tokens name unknown keys.
	FetchEvery = 15 * time.Minute
	keysPause  = 30 * time.Second
	// keysRetry is the time to the second attempt after a failure. It doubles for each further
	// attempt, up to keysPause.
	keysRetry = time.Second
	// FirstWait is how long Follow waits for the first keys.
	FirstWait = time.Second
)

// want requests a fetch of the keys. It does not wait.
func (t *Reader) want() {
	select {
	case t.wanted <- struct{}{}:
	default: // a fetch was requested already
	}
}

// Follow fetches keys until ctx is done. It returns when the first attempt is over, or
// after followTimeout.
func (t *Reader) Follow(ctx context.Context) {
	if t == nil || t.KeysURL == "" {
		return
	}
	first := make(chan struct{})
	go func() {
		ok := t.fetch(ctx)
		close(first)
		for retry := keysRetry; ctx.Err() == nil; ok = t.fetch(ctx) {
			if !ok {
				sleep(ctx, retry)
				retry = min(2*retry, keysPause)
				continue
			}
			retry = keysRetry
			sleep(ctx, keysPause)
			select {
			case <-ctx.Done():
			case <-t.wanted:
			case <-time.After(FetchEvery - keysPause):
			}
		}
	}()
	select {
	case <-first:
	case <-time.After(FirstWait):
	case <-ctx.Done():
	}
}

// sleep waits for a duration, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// fetch fetches keys once. If it fails, the previous keys stay.
func (t *Reader) fetch(ctx context.Context) bool {
	select {
	case <-t.wanted: // this fetch serves the request
	default:
	}
	changed, err := t.tryFetch(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		t.failed()
		if text := err.Error(); text != t.failure {
			t.failure = text
			t.log.Error("token keys not fetched; the previous ones stay in force", "error", err)
		}
	case changed || t.failure != "":
		t.failure = ""
		t.log.Info("token keys fetched", "count", len(t.keys.Load().keySet))
	}
	return err == nil
}

func (t *Reader) tryFetch(ctx context.Context) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.KeysURL, nil)
	if err != nil {
		return false, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := t.Client.Do(r)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, readfile.MaxSize+1))
	switch {
	case err != nil:
		return false, fmt.Errorf("%s: %w", t.KeysURL, err)
	case resp.StatusCode != http.StatusOK:
		return false, fmt.Errorf("%s: status %s", t.KeysURL, resp.Status)
	case len(data) > readfile.MaxSize:
		return false, fmt.Errorf("%s: larger than 1 MiB", t.KeysURL)
	}
	if changed, err = t.takeKeys(data); err != nil {
		err = fmt.Errorf("%s: %w", t.KeysURL, err)
	}
	return changed, err
}

// NewClient is a client that fetches keys, or other files, through the proxy that the settings name. It
// follows no redirect from https to http, and does not tell where it comes from: the URL may have a token.
func NewClient(s *config.Settings) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = s.Proxy()
	transport.MaxIdleConns, transport.IdleConnTimeout = 1, 10*time.Second
	transport.MaxResponseHeaderBytes = 64 << 10
	return &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		r.Header.Del("Referer")
		switch {
		case len(via) > 3:
			return errors.New("more than 3 redirects")
		case r.URL.Scheme != "https" && via[0].URL.Scheme == "https":
			return errors.New("a redirect from https to " + r.URL.Scheme)
		}
		return nil
	}}
}
