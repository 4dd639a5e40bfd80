package server_test

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/claims/claimstest"
)

// census counts the elements, and the bytes of texts, that a value reaches, by the field that
// holds them.
type census struct {
	seen map[seenAt]bool
	n    map[string]int
}

type seenAt struct {
	at   unsafe.Pointer
	kind reflect.Type
}

// censusOf counts what s reaches. Nothing may change it meanwhile.
func censusOf(s *server.Server) map[string]int {
	c := census{map[seenAt]bool{}, map[string]int{}}
	c.walk(reflect.ValueOf(s), "")
	return c.n
}

// walk counts what v reaches, which field holds.
func (c *census) walk(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Pointer:
		if at := (seenAt{v.UnsafePointer(), v.Type()}); !v.IsNil() && !c.seen[at] {
			c.seen[at] = true
			c.walk(v.Elem(), field)
		}
	case reflect.Interface:
		if !v.IsNil() {
			c.walk(v.Elem(), field)
		}
	case reflect.Struct:
		c.walkStruct(v, field)
	case reflect.Map:
		c.n[field] += v.Len()
		for i := v.MapRange(); i.Next(); {
			c.walk(i.Key(), field)
			c.walk(i.Value(), field)
		}
	case reflect.Slice:
		if v.Len() > 0 && c.seen[seenAt{v.UnsafePointer(), v.Type()}] {
			return
		} else if v.Len() > 0 {
			c.seen[seenAt{v.UnsafePointer(), v.Type()}] = true
		}
		c.n[field] += v.Len()
		fallthrough
	case reflect.Array:
		switch v.Type().Elem().Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Map, reflect.Slice, reflect.Array, reflect.Chan:
			for i := range v.Len() {
				c.walk(v.Index(i), field)
			}
		}
	case reflect.Chan:
		c.n[field] += v.Len()
	case reflect.String:
		c.n[field] += v.Len()
	}
}

func (c *census) walkStruct(v reflect.Value, field string) {
	if !v.CanAddr() {
		at := reflect.New(v.Type()).Elem()
		at.Set(v)
		v = at
	}
	own := reflect.NewAt(v.Type(), v.Addr().UnsafePointer())
	name := v.Type().String()
	switch {
	case strings.HasPrefix(name, "atomic.Pointer["):
		c.walk(own.MethodByName("Load").Call(nil)[0], field)
		return
	case name == "sync.Map":
		own.Interface().(*sync.Map).Range(func(key, value any) bool {
			c.n[field]++
			c.walk(reflect.ValueOf(value), field)
			return true
		})
		return
	case v.Type().Name() != "" && !strings.HasPrefix(v.Type().PkgPath(), "github.com/stintdev/stint"):
		return // what libraries hold is theirs to bound, and may change meanwhile
	}
	container := strings.HasPrefix(v.Type().PkgPath(), "github.com/stintdev/stint/internal/") || name == "stint.Memory" || name == "stint.Limiter"
	for i := range v.NumField() {
		f, holder := own.Elem().Field(i), name+"."+v.Type().Field(i).Name
		if container { // whose elements are those of the field that holds it
			holder = field
		}
		c.walk(reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem(), holder)
	}
}

// heldIn says which part of the sum of memory counts what the clients of TestGrown make a field
// hold. What is allocated at the start does not grow, and has tests of its bytes.
var heldIn = map[string]string{
	"auth.sessions.open":      "sessions of the dashboard",
	"claims.seenTokens.young": "verified tokens of clients",
	"claims.token.claims":     "verified tokens of clients",
	"fleet.Fallback.Local":    "keys",
	"storage.Storage.Limiter": "keys",
	"fleet.askDenied.key":     "remembered denials",
	"fleet.ban.id":            "remembered denials",
	"fleet.ban.key":           "remembered denials",
	"fleet.denial.asks":       "remembered denials",
	"fleet.debt.key":          "spent while the store is away",
	"fleet.entryKey.id":       "spent while the store is away",
	"fleet.entryKey.key":      "spent while the store is away",
	"fleet.ledger.debts":      "spent while the store is away",
	"offenders.shard.b":       "requests whose offenders are not counted yet",
	"recent.segment.text":     "recent requests",
	"watch.Bans.ends":         "bans, for the metric",
	"watch.banned.rule":       "bans, for the metric",
}

// What clients make grow is in the sum of memory that an instance reports: whatever field of
// the server holds more than before, after many clients came through every door, belongs to a
// part of it. A cache that is new is found here, because nothing here lists them.
func TestGrown(t *testing.T) {
	if attack.RaceDetector {
		t.Skip("it reads what belongs to other goroutines, which have ended unseen")
	}
	key := claimstest.Keys()["EdDSA"]
	keys := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(keys, claimstest.JWKS(t, key), 0o600); err != nil {
		t.Fatal(err)
	}
	redis, away := redistest.Start(t), redistest.Start(t)
	gone := openRedis(t, away.URL())
	away.Kill()
	up, ops := upstream(t, who("up")), inFile(t, secret("ops"))
	open := func(changes ...func(*server.Config)) *server.Server {
		s := newServer(t, grownRules, append(changes, everythingTo(up), func(c *server.Config) {
			c.Settings.JWT = &config.JWT{KeysFile: keys}
			c.Settings.Admin.Tokens = []config.Token{{Name: "ops", Scope: config.WriteScope, File: ops}}
		})...)
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	through := func(s stint.Store) func(*server.Config) {
		return func(c *server.Config) { c.Settings.Store, c.Limiter = "redis://", stint.NewLimiter(s) }
	}
	const clients = 300 // of whom each makes the number of elements grow by one or more
	parts, found := map[string]bool{}, map[string]bool{}
	for name, store := range map[string]func(*server.Config){
		"memory":        func(*server.Config) {},
		"Redis":         through(openRedis(t, redis.URL())),
		"Redis is away": through(gone),
	} {
		t.Run(name, func(t *testing.T) {
			fresh, s := open(store), open(store)
			for i := range clients {
				everyDoor(t, s, fmt.Sprintf("203.0.%d.%d", i/250, i%250), key.Sign(t, fmt.Sprintf(`{"sub":"user-%d"}`, i)))
			}
			footprint := s.Footprint()
			for _, p := range footprint.Parts {
				parts[p.Name] = true
			}
			fresh.Close() // and what changes it in the background
			s.Close()
			before, after := censusOf(fresh), censusOf(s)
			for _, field := range slices.Sorted(maps.Keys(after)) {
				if after[field] < before[field]+clients/2 {
					continue
				}
				found[field] = true
				if heldIn[field] == "" {
					t.Errorf("%d clients made %s grow from %d to %d: in which part of the sum of memory is it?", clients, field, before[field], after[field])
				}
			}
		})
	}
	for field, part := range heldIn {
		if !found[field] {
			t.Errorf("%s does not grow", field)
		}
		if !parts[part] {
			t.Errorf("the sum of memory has no part %q", part)
		}
	}
}

const grownRules = `
trusted_proxies: [192.0.2.1]
rules:
  - {name: ip, key: client.ip, limits: [2 per 1h fixed_window, 100 per 1h sliding_log], penalty: {ban_after: 2, ban_for: 1h}}
  - {name: user, match: has(claims.sub), key: claims.sub, limits: [1000 per 1h lease 5%, 3 in_flight]}
  - {name: budget, key: client.ip, cost: "10", cost_after: response.status, limits: [10000 per 1h hold]}
  - {name: shadow, mode: shadow, key: client.ip, limits: [1 per 1h sliding_window]}
  - {name: queue, shape: true, key: client.ip, limits: [1000000 per 1s leaky_bucket]}
alerts:
  - {name: much, when: usage > 50% of budget}
`

// everyDoor is a client at each door.
func everyDoor(t *testing.T, s *server.Server, client, token string) {
	for range 5 {
		r := httptest.NewRequest("GET", "http://example.com/"+client, nil)
		r.RemoteAddr = "192.0.2.1:1"
		r.Header.Set("X-Forwarded-For", client)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("User-Agent", client)
		s.Gateway().ServeHTTP(httptest.NewRecorder(), r)
	}
	check := httptest.NewRequest("POST", "http://example.com/v1/check", strings.NewReader(fmt.Sprintf(`{"client":"2001:db8:%s::1","request":{"method":"GET","path":"/c"},"hold":"60s"}`, strings.ReplaceAll(client, ".", ":"))))
	check.Header.Set("Content-Type", "application/json")
	s.Check().ServeHTTP(httptest.NewRecorder(), check)
	newBrowser(t, s.Admin()).want(401, "GET", "/v1/status", "", "Authorization", "Bearer "+secret(client), "Test-From", client+":1")
	newBrowser(t, s.Admin()).signIn(secret("ops"), 201)
}
