package server_test

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// The kill switch works, and so does every other, while a mode is set of a rule
// that has got another name.
func TestSwitchBesideAModeOfNoRule(t *testing.T) {
	o, s := newOperator(t)
	o.want(200, "PATCH", "/v1/switches", `{"rules":{"api":"off"}}`)
	set, err := rules.Parse("rules.yaml", []byte(strings.ReplaceAll(adminRules, "name: api", "name: app")))
	if err != nil {
		t.Fatal(err)
	}
	s.SetRules(set)
	o.want(200, "GET", "/v1/status", "", `"problems":[{"id":"api"`)
	o.want(422, "PATCH", "/v1/switches", `{"rules":{"api":"shadow"}}`, "did you mean app")
	o.want(200, "PATCH", "/v1/switches", `{"enabled":false}`, `"now":false`)
	o.want(200, "PATCH", "/v1/switches", `{"rules":{"login":"off"}}`, `"set":"off"`)
	o.want(200, "PATCH", "/v1/switches", `{"rules":{"api":null}}`)
	o.want(200, "GET", "/v1/status", "", `"problems":[]`)
}
