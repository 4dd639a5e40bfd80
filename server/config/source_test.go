package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/schema/rowtest"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

func files(text string) []rules.File {
	return []rules.File{{Name: "stint.yaml", Data: []byte(text)}}
}

// Of each setting that a variable can set, the variable means what the file means, goes before the file,
// and a flag goes before both; a wrong value names its origin.
func TestEachVariable(t *testing.T) {
	n := 0
	config.Table().Walk("", func(path string, row *schema.Row) {
		variable := config.Variable(path, row)
		if variable == "" {
			return
		}
		n++
		right, wrong := rowtest.Values(&row.Shape, "x")
		for _, text := range append(right, row.Example) {
			text = strings.Trim(text, `"`)
			if text == "" || strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{") {
				continue
			}
			inFile, problem := with(path, quoted(row, text))
			given, unknown := config.Environment([]string{"PATH=/bin", variable + "=" + text, "STINT_SERVER_PORT_80_TCP=tcp://10.0.0.1:80"})
			if len(given) != 1 || len(unknown) > 0 || problem != "" {
				t.Fatalf("%s: %+v, %v, %s", variable, given, unknown, problem)
			}
			got, err := (&config.Source{Files: files("rules: []"), Given: given}).ReadSettings()
			if err != nil && strings.HasPrefix(err.Error(), variable+": ") && !aboutOthers.MatchString(err.Error()) || !inFile.Equal(&got) {
				t.Errorf("%s=%s: %v\n%+v\nin a file:\n%+v", variable, text, err, got, inFile)
			}
		}
		for _, text := range wrong {
			if strings.HasPrefix(text, "[") || row.Kind == schema.KindText { // to which any variable is a text
				continue
			}
			_, _, err := (&config.Source{Files: files("rules: []"), Given: []config.Given{{Path: path, Text: text, From: variable}}}).Read()
			if err == nil || !strings.Contains("\n"+err.Error(), "\n"+variable+": ") {
				t.Errorf("%s=%s: %v", variable, text, err)
			}
		}
	})
	if n < 80 {
		t.Errorf("%d variables", n)
	}
}

// quoted is text as a file has it at row.
func quoted(row *schema.Row, text string) string {
	if row.Kind == schema.KindText || row.Kind == schema.KindScalar {
		return strconv.Quote(text)
	}
	return text
}

func TestPrecedence(t *testing.T) {
	const file = "server: {store: 'redis://file', admin: {listen: 'localhost:1', dashboard: false}, routes: [{upstream: 'http://a'}, {path: /b, upstream: 'http://b'}]}\nrules: []\n"
	given, _ := config.Environment([]string{"STINT_SERVER_STORE=redis://variable", "STINT_SERVER_ADMIN_LISTEN=localhost:2", "STINT_SERVER_MAX_KEYS="})
	given = append(given, config.Given{Path: "store", Text: "redis://flag", From: "--store"}, config.Given{Path: "routes[].upstream", Text: "http://c", From: "--upstream"})
	s, err := (&config.Source{Files: files(file), Given: given}).ReadSettings()
	if err != nil {
		t.Fatal(err)
	}
	if s.Store != "redis://flag" || s.Admin.Listen != "localhost:2" || s.Admin.Dashboard || len(s.Routes) != 1 || s.Routes[0].Path != "/" || s.Routes[0].Upstream.Host != "c" {
		t.Errorf("%+v", s)
	}
	told := map[string]config.InForce{}
	for _, v := range s.InForce() {
		told[v.Path] = v
	}
	for _, want := range []config.InForce{
		{Path: "store", Value: "redis://flag", From: "--store"},
		{Path: "admin.listen", Value: "localhost:2", From: "STINT_SERVER_ADMIN_LISTEN"},
		{Path: "admin.dashboard", Value: "false", From: "stint.yaml:1:75"},
		{Path: "routes[0].upstream", Value: "http://c", From: "--upstream"},
		{Path: "listen", Value: ":8080"},
		{Path: "upgrades", Value: "[websocket]"},
		{Path: "namespace", Value: "from the store URL, else stint"},
	} {
		if told[want.Path] != want {
			t.Errorf("%+v, want %+v", told[want.Path], want)
		}
	}
}

func TestUnknownVariables(t *testing.T) {
	_, unknown := config.Environment([]string{"STINT_SERVER_STOER=x", "STINT_SERVER_ROUTES=[]", "STINT_SERVER_SERVICE_HOST=10.0.0.1", "STINT_SERVER_PORT=tcp://10.0.0.1:80", "STINT_SERVER_SERVICE_PORT_HTTP=80"})
	if got := strings.Join(unknown, "; "); got != "STINT_SERVER_ROUTES (did you mean STINT_SERVER_RULES?); STINT_SERVER_STOER (did you mean STINT_SERVER_STORE?)" {
		t.Error(got)
	}
}

// No part of a password is shown, wherever it stands.
func TestInForceHidesSecrets(t *testing.T) {
	for _, store := range []string{
		"redis://user:sesame@host:6379/1", "redis://:se%2Fsame@host", "rediss://user:ses/ame@host", "redis+sentinel://a:1,b:2/master?sentinel_password=sesame",
		"redis://host?sentinel_password=x@sesame", "unix://user:sesame@/run/redis.sock", "sesame:x",
	} {
		s, _ := (&config.Source{Files: files("server: {store: '" + store + "'}\nrules: []")}).ReadSettings()
		for _, v := range s.InForce() {
			if strings.Contains(v.Value, "sesame") || strings.Contains(v.Value, "ame@") {
				t.Errorf("%s is shown as %s", store, v.Value)
			}
		}
	}
	s, err := (&config.Source{Files: files("server: {envoy: {xds: {server: 'a:1', headers: {authorization: sesame}, node_metadata: {zone: a}}}}\nrules: []")}).ReadSettings()
	shown := map[string]string{}
	for _, v := range s.InForce() {
		shown[v.Path] = v.Value
	}
	if shown["envoy.xds.headers"] != "(hidden)" || shown["envoy.xds.node_metadata"] != "{zone: a}" || err != nil {
		t.Errorf("headers are shown as %s, metadata as %s, %v", shown["envoy.xds.headers"], shown["envoy.xds.node_metadata"], err)
	}
}

// A URL of a list may have a token in its query.
func TestInForceHidesURLsOfLists(t *testing.T) {
	s, err := (&config.Source{Files: files("server: {lists: {bad: {url: 'https://example.com/bad?key=sesame', reload: 2h}}}\nrules: []")}).ReadSettings()
	shown := map[string]string{}
	for _, v := range s.InForce() {
		shown[v.Path] = v.Value
	}
	if got := shown["lists.bad.url"]; got == "" || strings.Contains(got, "sesame") || shown["lists.bad.reload"] != "2h" || err != nil {
		t.Errorf("%v, %v", shown, err)
	}
}

// ${...} stands for a variable or a file in what may be a secret or an address, and nowhere else.
func TestReferences(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("se same\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STINT_TEST_HOST", "redis.internal:6379")
	store := func(text string) (string, error) {
		s, err := (&config.Source{Files: files("server:\n  store: " + text + "\nrules: []")}).ReadSettings()
		return s.Store, err
	}
	for text, want := range map[string]string{
		"redis://${STINT_TEST_HOST}/2":                       "redis://redis.internal:6379/2",
		`"redis://:${file:` + path + `}@${STINT_TEST_HOST}"`: "redis://:se same@redis.internal:6379",
		`"redis://$${STINT_TEST_HOST}"`:                      "redis://${STINT_TEST_HOST}",
		"redis://${STINT_TEST_NONE}":                         "stint.yaml:2:10: ${STINT_TEST_NONE}: the variable STINT_TEST_NONE is not set",
		"redis://${file:/nowhere/x}":                         "stint.yaml:2:10: ${file:/nowhere/x}: open /nowhere/x: no such file or directory",
		"redis://${STINT_TEST_HOST":                          "stint.yaml:2:10: ${ without }: write ${NAME} for a variable of the environment, ${file:PATH} for what a file has, or $${ for ${",
		"redis://${a-b}":                                     "stint.yaml:2:10: ${a-b}: write ${NAME} for a variable of the environment, or ${file:PATH} for what a file has",
		"redis://${file:}":                                   "stint.yaml:2:10: ${file:}: write ${NAME} for a variable of the environment, or ${file:PATH} for what a file has",
	} {
		got, err := store(text)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	s, err := (&config.Source{Files: files("server: {store: 'redis://${STINT_TEST_NONE}', listen: ':${', rules: '${STINT_TEST_HOST}'}\nrules: []"), FormOnly: true}).ReadSettings()
	want := "stint.yaml:1:55: ${ without }"
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), `unknown source of rules "${STINT_TEST_HOST}"`) || s.Store != "memory" {
		t.Errorf("%v, %s", err, s.Store)
	}
	n := 0
	config.Table().Walk("", func(path string, row *schema.Row) {
		expands := row.Expands
		if row.Kind == schema.KindNames {
			path, expands = path+".a", row.Item.Expands
		}
		_, problem := with(path, "'${STINT_TEST_NONE}'")
		if expands {
			n++
		}
		if got := strings.Contains(problem, "STINT_TEST_NONE is not set"); got != expands || row.Secret && !expands {
			t.Errorf("%s: %s", path, fmt.Sprint(problem))
		}
	})
	if n < 12 {
		t.Errorf("%d settings expand", n)
	}
}

// A file far too long, or one without an end, such as a device, is not read into memory.
func TestLongFileOfReference(t *testing.T) {
	path := filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int64]string{64 << 10: "", 64<<10 + 1: "the file has more than 64 KiB", 256 << 20: "the file has more than 64 KiB"} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := (&config.Source{Files: files(`server: {store: "${file:` + filepath.ToSlash(path) + `}"}`)}).ReadSettings()
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 || want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("of %d bytes: %v, in %d bytes", size, err, used)
		}
	}
}

// A pipe to which nobody writes does not keep a server from starting or ending.
func TestPipeOfReference(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	_, err := (&config.Source{Files: files("server: {store: '${file:" + path + "}'}")}).ReadSettings()
	if err == nil || !strings.Contains(err.Error(), "a pipe that nobody writes to") {
		t.Error(err)
	}
}

// What a program sets by itself is told as such, and nothing else is.
func TestInForceOfPrograms(t *testing.T) {
	s := config.Default()
	for _, v := range s.InForce() {
		if v.From != "" {
			t.Errorf("by default: %+v", v)
		}
	}
	s.MaxDelay, s.Admin.Listen, s.DegradedHeader, s.Store = 3*time.Second, "127.0.0.1:1", true, "redis://:sesame@127.0.0.1"
	told := map[config.InForce]bool{}
	for _, v := range s.InForce() {
		told[v] = true
	}
	for path, value := range map[string]string{"max_delay": "3s", "admin.listen": "127.0.0.1:1", "degraded_header": "true", "store": "redis://127.0.0.1"} {
		if !told[config.InForce{Path: path, Value: value, From: "the program"}] {
			t.Errorf("%s is not told to be %s: %v", path, value, s.InForce())
		}
	}
}
