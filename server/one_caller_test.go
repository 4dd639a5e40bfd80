package server_test

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// oneCallerRules count by a credential and by a cookie.
const oneCallerRules = `
rules:
  - {name: api, match: 'request.path == "/"', key: sha256(request.credential), limits: [2 per 24h fixed_window]}
  - {name: session, match: 'request.path == "/s"', key: 'sha256(request.cookies["SESSION"])', limits: [2 per 24h fixed_window]}
`

// spelledCredentials are headers by which a lenient application serves the client "ann:k".
func spelledCredentials() (all []string) {
	for _, scheme := range []string{"Bearer", "bearer", "BEARER", "BeArEr", "Token", "token"} {
		for _, blanks := range []string{" ", "  ", "\t", " \t ", "     "} {
			for _, after := range []string{"", " ", "\t"} {
				all = append(all, "Authorization: "+scheme+blanks+"ann:k"+after)
			}
		}
	}
	for _, scheme := range []string{"Basic ", "basic  ", "BASIC\t"} {
		for _, plain := range []string{"YW5uOms=", "YW5uOms", "YW5uOmt=", "YW5uOmt"} {
			all = append(all, "Authorization: "+scheme+plain)
		}
	}
	return append(all, "X-Api-Key: ann:k", "Api-Key: ann:k ", "Authorization: ann:k",
		"Authorization: Bearer ann:k, other", "Authorization: Bearer ann:k;x=1", "Authorization: Bearer ann:k 1", `Authorization: Token token="ann:k"`,
		"Authorization: Digest a=1, Bearer ann:k")
}

// spelledCookies are headers by which some application takes the client for the session "k:1".
func spelledCookies() (all []string) {
	for _, cookies := range []string{
		"SESSION=k:1", `SESSION="k:1"`, "SESSION=%6b:1", "SESSION=k%3A1", "SESSION = k:1", "a=b; SESSION=k:1", "SESSION=k:1;", `SESSION="%6B:1"`,
		"SESSION=k:1; SESSION=k:1", "SESSION=other1; SESSION=k:1", "SESSION=k:1; SESSION=other2", "a=1,SESSION=k:1", "SESSION=other3; a=1, SESSION=k:1",
		"=SESSION=k:1", `SESSION="\153:1"`, "session=k:1", "SESSION[]=k:1", "%53ESSION=k:1", "SESSION=other4; Session=k:1",
	} {
		all = append(all, "Cookie: "+cookies)
	}
	return all
}

// knowsOneCaller reports whether an application that serves clients however they spell what they are known by takes
// one for the client "ann:k" or the session "k:1".
func knowsOneCaller(s served) bool {
	h := s.header
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key"} {
		words := strings.FieldsFunc(h.Get(name), func(c rune) bool { return strings.ContainsRune(" \t,;\"", c) })
		for _, word := range words {
			plain, _ := base64.RawStdEncoding.DecodeString(strings.TrimRight(word, "="))
			if strings.TrimPrefix(word, "token=") == "ann:k" || string(plain) == "ann:k" {
				return true
			}
		}
	}
	for _, part := range strings.FieldsFunc(strings.Join(h["Cookie"], ";"), func(c rune) bool { return c == ';' || c == ',' }) {
		name, value, _ := strings.Cut(strings.TrimLeft(part, "= "), "=")
		name, _ = url.PathUnescape(strings.TrimSuffix(strings.TrimSpace(name), "[]"))
		value, _ = url.PathUnescape(strings.ReplaceAll(strings.Trim(value, "\" "), `\153`, "k"))
		if strings.EqualFold(name, "SESSION") && value == "k:1" {
			return true
		}
	}
	return false
}

// oneCaller are requests of one client, however it spells what it is known by.
var oneCaller = spellings{
	about: "one caller", file: oneCallerRules, at: everywhere, same: [][]spelled{
		spell(func(line string) spelled { return with(line) }, spelledCredentials()...),
		spell(func(line string) spelled { return spelled{"GET", "/s", "example.com", []string{line}} }, spelledCookies()...),
	}, takes: knowsOneCaller, served: 2, orRefused: true,
}

// The test can fail: where something ambiguous is let through, a client is served more often.
func TestOneCallerFinds(t *testing.T) {
	app := startLenient(t)
	for _, kind := range []rules.Ambiguity{rules.RepeatedCookie, rules.TwinCookie, rules.UnclearCredential} {
		c := oneCaller
		c.change = func(c *server.Config) { c.Settings.AllowAmbiguous = kind }
		if n := c.run(t, &spellingDoors[0], app); n[0]+n[1] <= 4 {
			t.Errorf("%s: %d requests were served, and 4 are within the limits", kind, n)
		}
	}
}

// The application knows the client by every spelling, or the test would show nothing.
func TestSpellingsAreServed(t *testing.T) {
	for _, r := range slices.Concat(oneCaller.same...) {
		if !knowsOneCaller(served{header: r.header()}) {
			t.Errorf("%q is nobody", r)
		}
	}
	if n := len(oneCaller.same[0]); n < 74 {
		t.Errorf("%d spellings", n)
	}
}
