package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// An instance of a fleet takes its file's rules when it is told to, also without the
// store, follows its file then and not the fleet, and takes the fleet's newest when it
// is told that. The others go on as they are.
func TestRulesSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := func(amount int) string {
			return fmt.Sprintf("rules:\n  - {name: all, key: client.ip, limits: [%d per 1h]}\n", amount)
		}
		set := func(amount int) *rules.Set {
			set, err := rules.Parse("rules.yaml", []byte(text(amount)))
			if err != nil {
				t.Fatal(err)
			}
			return set
		}
		var log logged
		f := newFleet(t)
		a, one := f.join(text(5), logTo(&log))
		b, _ := f.join(text(5))
		has := func(o operator, source string, amount int) {
			t.Helper()
			o.want(200, "GET", "/v1/rules", "", `"source":"`+source+`"`, fmt.Sprintf(`"%d per 1h"`, amount))
			o.want(200, "GET", "/v1/rules/source", "", `"source":"`+source+`"`)
		}
		a.want(200, "PUT", "/v1/rules", push(text(1), 0))
		synctest.Wait()
		has(a, "fleet", 1)
		if taken(one.SetRules(set(6))) {
			t.Error("the file's rules were taken while the fleet's decide")
		}
		f.shelf.set(func(s *shelf) { s.down = true })
		time.Sleep(2 * time.Second)

		a.want(422, "PUT", "/v1/rules/source", `{"source":"redis"}`, "one of file, fleet")
		a.want(200, "PUT", "/v1/rules/source", `{"source":"file","reason":"refuses all"}`, `"ordered":{"at":`, `"who":"local","reason":"refuses all"`)
		has(a, "file", 6) // the newest of the file
		has(b, "fleet", 1)
		a.want(200, "GET", "/v1/status", "", `"source":"file"`, `"ordered":{`)
		if text := log.taken(); !strings.Contains(text, `action="take rules of the file" what="this instance" reason="refuses all"`) {
			t.Errorf("no audit:\n%s", text)
		}
		if !taken(one.SetRules(set(7))) {
			t.Error("the file's rules were not taken")
		}
		has(a, "file", 7)

		f.shelf.set(func(s *shelf) { s.down = false })
		time.Sleep(2 * time.Second)
		b.want(200, "PUT", "/v1/rules", push(text(2), 1))
		time.Sleep(time.Second)
		has(a, "file", 7)
		has(b, "fleet", 2)
		a.want(200, "PUT", "/v1/rules/source", `{"source":"fleet"}`)
		has(a, "fleet", 2)
		if answer := a.want(200, "GET", "/v1/status", ""); strings.Contains(answer, "ordered") {
			t.Errorf("%s", answer)
		}
	})
}

// Where there is no fleet, there is nothing to choose.
func TestRulesSourceOfFile(t *testing.T) {
	o, _ := newOperator(t)
	o.want(409, "PUT", "/v1/rules/source", `{"source":"fleet"}`, "from its file in any case")
	o.want(200, "GET", "/v1/rules/source", "", `"source":"file"`)
}
