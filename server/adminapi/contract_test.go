package adminapi_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

// The types have the members that docs/admin-api.yaml gives them, and no others. Members
// of an answer that are always there are required in the contract.
func TestContract(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("../../docs/admin-api.yaml")
	if err != nil {
		t.Fatal(err)
	}
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
		compare(t, pattern, reflect.TypeOf(requested), operation(pattern).RequestBody.Value.Content.Get("application/json").Schema.Value, true)
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
					compare(t, pattern, reflect.TypeFor[adminapi.Error](), answer.Value.Content.Get("application/problem+json").Schema.Value, false)
				} else {
					content := answer.Value.Content.Get("application/json")
					if content == nil {
						content = answer.Value.Content.Get("text/event-stream")
					}
					compare(t, pattern, reflect.TypeOf(answers[pattern]), content.Schema.Value, false)
				}
			}
		}
	}
}

// compare compares the members of a type with the properties of a schema, and those of
// what they hold.
func compare(t *testing.T, where string, of reflect.Type, schema *openapi3.Schema, request bool) {
	t.Helper()
	switch of {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[rules.Key](), reflect.TypeFor[adminapi.Choice[bool]]():
		return
	}
	switch of.Kind() {
	case reflect.Pointer:
		compare(t, where, of.Elem(), schema, request)
	case reflect.Slice:
		if !schema.Type.Is("array") {
			t.Errorf("%s: the contract has no list", where)
			return
		}
		compare(t, where, of.Elem(), schema.Items.Value, request)
	case reflect.Struct:
		properties, required := map[string]*openapi3.Schema{}, []string{}
		all := []*openapi3.SchemaRef{{Value: schema}}
		for i := 0; i < len(all); i++ {
			s := all[i]
			all = append(all, s.Value.AllOf...)
			required = append(required, s.Value.Required...)
			for name, property := range s.Value.Properties {
				properties[name] = property.Value
			}
		}
		members(of, func(name string, optional bool, of reflect.Type) {
			property := properties[name]
			if delete(properties, name); property == nil {
				t.Errorf("%s: the contract has no %s", where, name)
				return
			}
			if needed := slices.Contains(required, name); needed && optional || !needed && !optional && !request {
				t.Errorf("%s: %s is required: %v, and may be left out: %v", where, name, needed, optional)
			}
			compare(t, where+" "+name, of, property, request)
		})
		for name := range properties {
			t.Errorf("%s: the type has no %s", where, name)
		}
	}
}

func members(of reflect.Type, yield func(name string, optional bool, of reflect.Type)) {
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Anonymous {
			members(f.Type, yield)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		yield(name, options != "", f.Type)
	}
}
