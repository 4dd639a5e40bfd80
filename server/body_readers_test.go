package server_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/redistest"
)

// spelledBody draws a body that some reader may take to have rows, and how it is declared.
func spelledBody(rng *rand.Rand) (body, kind string) {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	name := func() string {
		switch rng.IntN(8) {
		case 0:
			return pick("Rows", "ROWS", "row\u017f", "ro\u0077s", `ro\u0077s`, `\u0072ows`, "rows ", " rows", "rows\x00", `rows\u0000`, "row", "ROWſ")
		case 1:
			return pick("a", "b", "__proto__", "constructor", "")
		}
		return "rows"
	}
	number := func() string {
		if rng.IntN(3) > 0 {
			return pick("1", "7", "500000", "5e5")
		}
		return pick("1", "7", "500000", "5e5", "500000.0", "0", "-0", "1e999", "9223372036854775808", `"500000"`, "null", "true", "[500000]", "0x10", "01", "+5", "Infinity", "NaN", "1_000")
	}
	var value func(depth int) string
	value = func(depth int) string {
		if depth > 0 && rng.IntN(3) == 0 {
			return `{"` + name() + `":` + value(depth-1) + `}`
		}
		return number()
	}
	var members []string
	for range 1 + rng.IntN(2)*rng.IntN(3) {
		members = append(members, `"`+name()+`"`+pick(":", ": ", " :", ":\t")+value(1))
	}
	body = pick("", "", "", "\ufeff", " ", "\n", "\ufeff\ufeff", "//\n") + "{" + strings.Join(members, pick(",", ", ", ",", ",\n", ",,")) + pick("", "", "", "", "", ",") + "}" + pick("", "", "", "", " ", "\n", "x", "{}", "\x00")
	kind = pick("application/json", "text/plain", "image/png", "", "application/json; charset=utf-8", "application/json; charset=latin1", "application/x-www-form-urlencoded", "application/json;charset=utf-16le")
	if rng.IntN(16) == 0 {
		var b []byte
		for _, c := range utf16.Encode([]rune(body)) {
			b = append(b, byte(c), byte(c>>8))
		}
		body = string(b)
	}
	return body, kind
}

// What readers of JSON in Go, Node and Python take rows for, in lines of base64; a line without a number
// has none.
var bodyReaders = map[string][]string{
	"node": {"-e", `
const lines = require('fs').readFileSync(0, 'utf8').trim().split('\n')
for (const line of lines) {
  const bytes = Buffer.from(line, 'base64')
  let said = ''
  for (const encoding of ['utf8', 'utf16le']) {
    try {
      const text = bytes.toString(encoding)
      const rows = JSON.parse(text.charCodeAt(0) === 0xfeff ? text.slice(1) : text).rows
      if (typeof rows === 'number') said += ' ' + rows
    } catch (e) {}
  }
  console.log(said)
}`},
	"python3": {"-c", `
import base64, json, sys
for line in sys.stdin:
    said = ''
    try:
        value = json.loads(base64.b64decode(line))
        rows = value['rows'] if isinstance(value, dict) else None
        if isinstance(rows, (int, float)) and not isinstance(rows, bool):
            said = repr(float(rows))
    except Exception:
        pass
    print(said)
`},
}

// Whatever a reader takes for the rows of a body, the request was charged as much, or refused, however
// it is spelled and declared.
func TestBodiesAsOthersReadThem(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(attack.Seed(t), 3))
	n := 3000
	if testing.Short() {
		n = 600
	}
	const file = `rules: [{name: rows, key: '"all"', cost: 'has(body.rows) ? int(body.rows) : 1', limits: [1000000 per 24h fixed_window hold]}]`
	var bodies, kinds []string
	var charged []int64
	var lines strings.Builder
	passed := 0
	for range n {
		body, kind := spelledBody(rng)
		bodies, kinds = append(bodies, body), append(kinds, kind)
		cost := costOfBody(t, file, body, kind, "", rng.IntN(2) == 0)
		charged = append(charged, cost)
		if cost > 1 {
			passed++
		}
		fmt.Fprintln(&lines, base64.StdEncoding.EncodeToString([]byte(body)))
	}
	check := func(reader string, i int, rows float64) {
		if c := charged[i]; c > 0 && rows > float64(c) {
			t.Errorf("%s reads %g rows in %q as %s, which was charged %d", reader, rows, bodies[i], kinds[i], c)
		}
	}
	for i, body := range bodies {
		var v struct {
			Rows float64 `json:"rows"`
		}
		_ = json.NewDecoder(strings.NewReader(body)).Decode(&v) // which reads no further than the first value
		check("Go", i, v.Rows)
	}
	for reader, command := range bodyReaders {
		program, err := exec.LookPath(reader)
		if err != nil {
			if os.Getenv(requireProxies) != "" {
				t.Fatal(err)
			}
			redistest.Skip(t, reader, "scripts/get node python3")
		}
		c := exec.Command(program, command...)
		c.Stdin = strings.NewReader(lines.String())
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s: %v", reader, err)
		}
		said := strings.Split(string(out), "\n")
		if len(said) < n {
			t.Fatalf("%s: %d lines of %d", reader, len(said), n)
		}
		for i := range n {
			for _, text := range strings.Fields(said[i]) {
				if rows, err := strconv.ParseFloat(text, 64); err == nil {
					check(reader, i, rows)
				}
			}
		}
	}
	t.Logf("%d of %d were charged by their rows", passed, n)
	if passed < n/100 {
		t.Errorf("only %d of %d were charged by their rows: that proves too little", passed, n)
	}
}
