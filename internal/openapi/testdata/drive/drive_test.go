// Package drive asks a stint serve by generated clients; see TestClients.
package drive

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/openapi/testdata/admin"
	"github.com/stintdev/stint/internal/openapi/testdata/check"
)

// with sets a header of each request.
func with(name, value string) func(context.Context, *http.Request) error {
	return func(_ context.Context, r *http.Request) error {
		r.Header.Set(name, value)
		return nil
	}
}

// checkAPI is a client with a token.
func checkAPI(t *testing.T, token string) *check.ClientWithResponses {
	t.Helper()
	c, err := check.NewClientWithResponses(os.Getenv("STINT_CHECK"), check.WithRequestEditorFn(with("Authorization", "Bearer "+token)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const shop = "shop-0123456789abcdef"

// ask asks about one request.
func ask(t *testing.T, of check.Check) *check.CheckResponse {
	t.Helper()
	var body check.CheckBody
	if err := body.FromCheck(of); err != nil {
		t.Fatal(err)
	}
	got, err := checkAPI(t, shop).CheckWithResponse(t.Context(), nil, body)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// allowed is the decision about a request that passes.
func allowed(t *testing.T, of check.Check) check.Decided {
	t.Helper()
	got := ask(t, of)
	if got.JSON200 == nil {
		t.Fatalf("%d %s, want 200", got.StatusCode(), got.Body)
	}
	d, err := got.JSON200.AsDecided()
	if err != nil || !d.Allowed || d.Outcome != check.DecidedOutcomeAllowed {
		t.Fatalf("%s: %v", got.Body, err)
	}
	return d
}

// login is a check of a client, under the rule of that name.
func login(client string) check.Check {
	return check.Check{Operation: new("login"), Client: new(client)}
}

func TestAllowedAndRefused(t *testing.T) {
	if d := allowed(t, login("192.0.2.1")); d.Rule != "login" || d.Limit != 1 || d.Remaining != 0 || len(d.Decisions) != 1 {
		t.Errorf("allowed: %+v", d)
	}
	got := ask(t, login("192.0.2.1"))
	if got.JSON429 == nil {
		t.Fatalf("%d %s, want 429", got.StatusCode(), got.Body)
	}
	if d, h := got.JSON429, got.Headers429; d.Outcome != check.DecidedOutcomeLimited || d.RetryAfterUs <= 0 || h.RetryAfter == nil || *h.XRateLimitLimit != 1 || len(*h.StintDecision) != 16 {
		t.Errorf("refused: %+v %+v", d, h)
	}
	if got := ask(t, check.Check{Operation: new("bad")}); got.JSON403 == nil || got.JSON403.Outcome != check.DecidedOutcomeBlocked || *got.JSON403.List != check.DecidedListBlocklist {
		t.Errorf("blocked: %d %s", got.StatusCode(), got.Body)
	}
	if got := ask(t, check.Check{Cost: new(int64(-1))}); got.ApplicationproblemJSON400 == nil || !strings.Contains(got.ApplicationproblemJSON400.Detail, "negative") {
		t.Errorf("malformed: %d %s", got.StatusCode(), got.Body)
	}
}

func TestList(t *testing.T) {
	var body check.CheckBody
	spent := check.Check{Operation: new("export"), Attrs: &map[string]any{"user": "list"}, Cost: new(int64(30)), Charge: new(true)}
	if err := body.FromChecks(check.Checks{login("192.0.2.2"), login("192.0.2.2"), login("nonsense"), spent}); err != nil {
		t.Fatal(err)
	}
	got, err := checkAPI(t, shop).CheckWithResponse(t.Context(), nil, body)
	if err != nil || got.JSON200 == nil {
		t.Fatalf("%v %s", err, got.Body)
	}
	all, err := got.JSON200.AsCheckAnswers()
	if err != nil || len(all) != 4 {
		t.Fatalf("%v %s", err, got.Body)
	}
	for i, want := range []check.DecidedOfListStatus{200, 429} {
		if d, err := all[i].AsDecidedOfList(); err != nil || d.Status != want || d.Allowed != (want == 200) || (d.RetryAfter == nil) != d.Allowed {
			t.Errorf("%d: %v %+v", i, err, d)
		}
	}
	if p, err := all[2].AsProblem(); err != nil || p.Status != 400 || !strings.Contains(p.Detail, "client") {
		t.Errorf("malformed: %v %+v", err, p)
	}
	if c, err := all[3].AsCountedOfList(); err != nil || c.Status != 200 || c.Outcome != check.CountedOfListOutcomeCharged || c.Decisions[0].Charged != 30 {
		t.Errorf("charged: %v %+v", err, c)
	}
}

func TestHold(t *testing.T) {
	c := checkAPI(t, shop)
	export := check.Check{Operation: new("export"), Attrs: &map[string]any{"user": "ann"}, Cost: new(int64(600)), Hold: new("60s")}
	held := allowed(t, export).Hold
	if held == nil {
		t.Fatal("it holds nothing")
	}
	if got := ask(t, export); got.JSON429 == nil || got.JSON429.Busy == nil || *got.JSON429.Held != 600 {
		t.Errorf("beside it: %d %s", got.StatusCode(), got.Body)
	}
	counted := func(r *check.HoldResult, body []byte) check.Counted {
		t.Helper()
		if r == nil {
			t.Fatalf("%s", body)
		}
		got, err := r.AsCounted()
		if err != nil {
			t.Fatalf("%v %s", err, body)
		}
		return got
	}
	var renewal check.RenewBody
	if err := renewal.FromRenewal(check.Renewal{Hold: *held}); err != nil {
		t.Fatal(err)
	}
	renewed, err := c.RenewWithResponse(t.Context(), nil, renewal)
	if err != nil {
		t.Fatal(err)
	}
	if got := counted(renewed.JSON200, renewed.Body); got.Outcome != check.CountedOutcomeRenewed {
		t.Errorf("renewed: %+v", got)
	}
	var settlement check.SettleBody
	if err := settlement.FromSettlement(check.Settlement{Hold: *held, Cost: new(int64(100))}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []check.CountedOutcome{check.CountedOutcomeSettled, check.CountedOutcomeUnknown} {
		settled, err := c.SettleWithResponse(t.Context(), nil, settlement)
		if err != nil {
			t.Fatal(err)
		}
		if got := counted(settled.JSON200, settled.Body); got.Outcome != want || len(got.Decisions) != 2 || want == check.CountedOutcomeSettled && got.Decisions[0].Charged != 100 {
			t.Errorf("settled: %+v, want %s", got, want)
		}
	}
	if d := allowed(t, export); d.Remaining != 1 { // the slots are the strictest
		t.Errorf("after it: %+v", d)
	}
}

func TestBan(t *testing.T) {
	ops, err := admin.NewClientWithResponses(os.Getenv("STINT_ADMIN"), admin.WithRequestEditorFn(with("Authorization", "Bearer ops-0123456789abcdef")))
	if err != nil {
		t.Fatal(err)
	}
	var key admin.Key
	if err := key.FromKey0("192.0.2.3"); err != nil {
		t.Fatal(err)
	}
	banned, err := ops.BanWithResponse(t.Context(), admin.BanJSONRequestBody{Rule: new("login"), Key: &key, For: new("1h"), Reason: new("abuse")})
	if err != nil || banned.JSON201 == nil {
		t.Fatalf("%v %s", err, banned.Body)
	}
	if got := ask(t, login("192.0.2.3")); got.JSON429 == nil || got.JSON429.Outcome != check.DecidedOutcomeBanned || got.JSON429.BanLeftUs <= 0 {
		t.Errorf("banned: %d %s", got.StatusCode(), got.Body)
	}
	if lifted, err := ops.LiftBanWithResponse(t.Context(), banned.JSON201.Id, nil); err != nil || lifted.JSON200 == nil || lifted.JSON200.Id != banned.JSON201.Id {
		t.Fatalf("%v %s", err, lifted.Body)
	}
	allowed(t, login("192.0.2.3"))
	if again, err := ops.LiftBanWithResponse(t.Context(), banned.JSON201.Id, nil); err != nil || again.ApplicationproblemJSONDefault == nil || again.ApplicationproblemJSONDefault.Status != 404 {
		t.Errorf("lifted twice: %v %s", err, again.Body)
	}
	if s, err := ops.GetSwitchesWithResponse(t.Context()); err != nil || s.JSON200 == nil || s.JSON200.Enabled.Set != nil || !s.JSON200.Enabled.Now || len(s.JSON200.Rules) != 4 {
		t.Errorf("switches: %v %s", err, s.Body)
	}
}

func TestAuthorize(t *testing.T) {
	c := checkAPI(t, "none")
	for i, want := range []int{200, 429} {
		got, err := c.AuthorizeWithResponse(t.Context(), &check.AuthorizeParams{
			XForwardedMethod: new("GET"), XForwardedUri: new("/once"), XForwardedHost: new("localhost"), XForwardedFor: new("192.0.2.4"),
		}, with("Stint-Token", shop))
		if err != nil || got.StatusCode() != want {
			t.Errorf("%d: %v %s %s", i, err, got.Status(), got.Body)
		}
	}
}

func TestProbesAndTokens(t *testing.T) {
	c := checkAPI(t, "wrong-0123456789abcdef")
	if got, err := c.HealthWithResponse(t.Context()); err != nil || string(got.Body) != "ok\n" {
		t.Errorf("%v %s", err, got.Body)
	}
	if got, err := c.ReadyWithResponse(t.Context()); err != nil || string(got.Body) != "ready\n" {
		t.Errorf("%v %s", err, got.Body)
	}
	if got, err := c.MetricsWithResponse(t.Context()); err != nil || got.ApplicationproblemJSON401 == nil || *got.Headers401.WWWAuthenticate != "Bearer" {
		t.Errorf("%v %s", err, got.Body)
	}
	if got, err := checkAPI(t, shop).MetricsWithResponse(t.Context()); err != nil || got.StatusCode() != 200 || !strings.Contains(string(got.Body), "stint_") {
		t.Errorf("%v %s", err, got.Body)
	}
}
