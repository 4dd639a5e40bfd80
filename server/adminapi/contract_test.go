package adminapi_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/openapitest"
	"github.com/stintdev/stint/server/rules"
)

// The types have the members that docs/admin-api.yaml gives them, and no others. Members
// of an answer that are always there are required in the contract.
func TestContract(t *testing.T) {
	doc, err := openapitest.Load("../../docs/admin-api.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.CompileAll(); err != nil {
		t.Error(err)
	}
	opaque := []reflect.Type{reflect.TypeFor[time.Time](), reflect.TypeFor[rules.Key](), reflect.TypeFor[adminapi.Choice[bool]]()}
	requests := openapitest.Comparison{TB: t, Opaque: opaque, Request: true}
	replies := openapitest.Comparison{TB: t, Opaque: opaque}
	operation := func(pattern string) *openapi3.Operation {
		method, path, _ := strings.Cut(pattern, " ")
		return doc.Paths.Find(path).GetOperation(method)
	}
	seen := map[string]bool{}
	for pattern, requested := range map[string]any{
		"PUT /v1/rules":           adminapi.PushRequest{},
		"POST /v1/rules/check":    adminapi.CheckRequest{},
		"POST /v1/rules/preview":  adminapi.PreviewRequest{},
		"POST /v1/rules/rollback": adminapi.RollbackRequest{},
		"PUT /v1/rules/source":    adminapi.SourceRequest{},
		"PATCH /v1/switches":      adminapi.SwitchesRequest{},
		"POST /v1/overrides":      adminapi.OverrideRequest{},
		"POST /v1/lists/{list}":   adminapi.ListRequest{},
		"POST /v1/bans":           adminapi.BanRequest{},
		"POST /v1/bans/lift":      adminapi.LiftRequest{},
		"POST /v1/keys/show":      adminapi.KeyRequest{},
		"POST /v1/keys/reset":     adminapi.KeyRequest{},
		"POST /v1/keys/refund":    adminapi.RefundRequest{},
		"POST /v1/keys/release":   adminapi.ReleaseRequest{},
		"POST /v1/explain":        adminapi.ExplainRequest{},
		"POST /v1/session":        adminapi.SessionRequest{},
		"POST /v1/silences":       adminapi.SilenceRequest{},
	} {
		requests.Compare(pattern, reflect.TypeOf(requested), operation(pattern).RequestBody.Value.Content.Get("application/json").Schema.Value)
		seen[pattern] = true
	}
	answers := map[string]any{
		"GET /v1/status":                  adminapi.Status{},
		"GET /v1/settings":                adminapi.Settings{},
		"GET /v1/rules":                   adminapi.Rules{},
		"PUT /v1/rules":                   adminapi.Version{},
		"POST /v1/rules/check":            adminapi.Checked{},
		"POST /v1/rules/preview":          adminapi.Preview{},
		"GET /v1/rules/versions":          adminapi.Versions{},
		"GET /v1/rules/versions/{number}": adminapi.Version{},
		"POST /v1/rules/rollback":         adminapi.Version{},
		"GET /v1/rules/source":            adminapi.Source{},
		"PUT /v1/rules/source":            adminapi.Source{},
		"GET /v1/audit":                   adminapi.AuditLog{},
		"GET /v1/switches":                adminapi.Switches{},
		"PATCH /v1/switches":              adminapi.Switches{},
		"GET /v1/overrides":               adminapi.Overrides{},
		"POST /v1/overrides":              adminapi.AddedOverride{},
		"DELETE /v1/overrides/{id}":       adminapi.Override{},
		"GET /v1/lists/{list}":            adminapi.List{},
		"POST /v1/lists/{list}":           adminapi.Listed{},
		"DELETE /v1/lists/{list}/{id}":    adminapi.Listed{},
		"GET /v1/bans":                    adminapi.Bans{},
		"POST /v1/bans":                   adminapi.Ban{},
		"DELETE /v1/bans/{id}":            adminapi.Ban{},
		"POST /v1/bans/lift":              adminapi.Lifted{},
		"POST /v1/keys/show":              adminapi.KeyState{},
		"POST /v1/keys/reset":             adminapi.KeyState{},
		"POST /v1/keys/refund":            adminapi.KeyState{},
		"POST /v1/keys/release":           adminapi.Released{},
		"POST /v1/explain":                adminapi.Explanation{},
		"GET /v1/session":                 adminapi.Session{},
		"POST /v1/session":                adminapi.Session{},
		"DELETE /v1/session":              adminapi.Session{},
		"GET /v1/live":                    adminapi.Live{},
		"GET /v1/series":                  adminapi.Series{},
		"GET /v1/instances":               adminapi.Instances{},
		"GET /v1/offenders":               adminapi.Offenders{},
		"GET /v1/offenders/history":       adminapi.History{},
		"GET /v1/alerts":                  adminapi.Alerts{},
		"POST /v1/alerts/test":            adminapi.AlertTest{},
		"GET /v1/silences":                adminapi.Silences{},
		"POST /v1/silences":               adminapi.Silence{},
		"DELETE /v1/silences/{id}":        adminapi.Silence{},
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			pattern := method + " " + path
			if op.RequestBody != nil && !seen[pattern] {
				t.Errorf("%s: no type of its request", pattern)
			}
			if answers[pattern] == nil {
				t.Errorf("%s: no type of its answer", pattern)
				continue
			}
			for code, answer := range op.Responses.Map() {
				if code == "default" {
					replies.Compare(pattern, reflect.TypeFor[adminapi.Error](), answer.Value.Content.Get("application/problem+json").Schema.Value)
				} else {
					content := answer.Value.Content.Get("application/json")
					if content == nil {
						content = answer.Value.Content.Get("text/event-stream")
					}
					replies.Compare(pattern, reflect.TypeOf(answers[pattern]), content.Schema.Value)
				}
			}
		}
	}
}
