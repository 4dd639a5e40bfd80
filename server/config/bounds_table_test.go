package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/golden"
)

// bound is a row of docs/bounds.md. Its texts may name constants: see constants.fill. The field tests names those that
// fail if the bound does not hold; TestBoundsAreTested of the server looks whether they are there.
type bound struct{ of, most, beyond, tests string }

var boundsOfRequests = []bound{
	{"headers with the request line", "68 KiB", "431", "TestHeaderBombs"},
	{"time for a TLS handshake or headers; idle connection", "10 s; 2 min", "connection closed", "TestSlowlorisIsCutOff, TestAttackHTTP2Frames, TestAttackSlowloris"},
	{"body of the check API; line of `stint simulate`", "{server/internal/check.MaxBody B}", "413", "TestEndlessBody, TestCheckStatuses, TestSimulateLongLines"},
	{"checks, settlements or renewals in a call; limits of their holds", "{server/internal/check.MaxChecks}; {server/internal/check.maxCalls}", "413", "TestCheckEachRefuses, TestHoldsRefused, TestAttackSettleManyLimits"},
	{"keys and limits of one hold", "{server/internal/check.maxHoldBytes B}", "400, nothing held", "TestHoldFits"},
	{"body of the admin API; of a sign-in", "{server/config.MaxAdminBody B}; {server/internal/admin.maxSignIn B}", "413", "TestAdminRefusals, TestSignInRefuses"},
	{"sending to the check or admin API; reading the answer", "{server.smallTimeout}; check API 1 min and `max_delay`, admin API {server.answerTimeout}", "connection closed", "TestAttackUnreadAnswers"},
	{"client of the gateway that does not send or read", "`body_timeout`, {default.BodyTimeout}", "408, or cut off", "TestPace, TestUnfinishedUpload, TestAttackUnfinishedUploads, TestUnreadResponse, TestPaceSparesSlowUpstreams, TestRestOfARefusedBody"},
	{"request that a proxy asks about, with all headers", "{server/internal/gateway.MaxHeaderBytes B}", "does not pass", "TestAttackProxyFloods"},
	{"key", "{stint.MaxKey B}", "400; values of Envoy's descriptors count by SHA-256", "TestBadRequests, TestKeyJSON, TestOddValues"},
	{"limits of a request; Envoy's descriptors", "{stint.MaxAsks}", "400, `INVALID_ARGUMENT`; shadow rules: skipped", "TestBadRequests, TestManyInShadow, TestMalformedCalls"},
	{"Envoy: message, `/json` body; headers", "{server/envoy.maxMessage B}; {server/envoy.maxHeaders B}", "`RESOURCE_EXHAUSTED`, 413", "TestTooLarge"},
	{"expression: work; texts it makes; a path, header or parameter", "{server/rules/internal/expr.MaxWork} steps; {server/rules/internal/expr.MaxText B}; {server/rules/internal/expr.MaxRequestText B}", "400", "TestWorkIsBounded, TestAttackExpressionBombs, TestLongTextsOfRequests"},
	{"body that expressions read; its fields", "{server/internal/gateway.maxBody B}; {server/rules/internal/expr.MaxBodyFields} of 64 KiB", "400", "TestManyFieldsOfBodies, TestBodies"},
	{"body that `tokens` read", "{server/internal/gateway.maxPrompt B} decoded; above {internal/usage.fewDecoded B}, {internal/usage.mostGrowth} times what was sent; {internal/usage.maxCodings} encodings", "estimated by length; a batch gets 400", "TestDecode, TestUsageIsAskedForWhateverTheBody, TestLongBodiesAreKeptOnce, TestDecoderMemory, TestAttackLongResponsesToLargeBodies"},
	{"response that says the cost", "{internal/usage.mostKept B} a value; decoded {internal/usage.fewDecoded B}, or {internal/usage.mostGrowth} times what was sent; {internal/usage.mostEncodings} encodings", "`unsettled`", "TestUnreadable, TestKeepsLittle"},
	{"`X-Forwarded-For`, `Forwarded`", "{httplimit.maxHops} hops from the right, of {httplimit.longestForwarded B}", "last trusted address is the client", "TestWalkIsBounded"},
	{"`Accept`", "{internal/errorformat.longestAccept B}", "read as `*/*`", "TestChoose"},
	{"HTTP/2 streams: at once; waiting", "250; 1,000", "GOAWAY", "TestRapidReset"},
	{"HTTP/2 streams given up unanswered; frames without use", "{server/internal/http2conn.mostResets}, and {server/internal/http2conn.resetsPerSecond} a second; {server/internal/http2conn.spareFrames}, and {server/internal/http2conn.sparePerSecond} a second", "connection closed", "TestRapidResetOfGRPC, TestAttackHTTP2Frames, TestHTTP2ClientsAreServed"},
}

var boundsOfRules = []bound{
	{"rules; limits of each", "{server/rules.maxRules}; {server/rules.maxLimits}", "", "TestBounds"},
	{"files; one; together", "{server/rules.maxFiles}; {internal/yamlnode.MaxFile B}; {server/rules.maxTogether B}", "", "TestParseFilesBounds"},
	{"expression", "{server/rules/internal/expr.MaxExpression B}, {server/rules/internal/expr.MaxDepth} levels; constants of {server/rules/internal/expr.MaxFolded B} and {server/rules/internal/expr.MaxWork} steps; patterns of {server/rules/internal/expr.maxPattern} steps", "", "TestBounds, TestBudgets, TestAttackExpressionBombs, TestPatternSteps"},
	{"expressions together", "{server/rules/internal/expr.MaxExpressions B} (120 MiB compiled); constants of {server/rules/internal/expr.MaxConstants B}; patterns of {server/rules/internal/expr.MaxPatterns} steps", "", "TestBudgets"},
	{"`refusal`, `errors`", "{internal/errorformat.MaxBodies} bodies of {internal/errorformat.MaxBody B}, {internal/errorformat.MaxHeaders} headers of {internal/errorformat.MaxText B}, {internal/errorformat.MaxPlaceholders} placeholders a text", "", "TestNewErrorFormatErrors"},
	{"alerts; numbers they measure", "{server/rules.maxAlerts}; {server/rules.maxMeasures}", "", "TestBytesOfAlerts"},
	{"document of the fleet", "{server/internal/control.maxDocument B} (422)", "", "TestPushTooMuch"},
}

var boundsOfInstances = []bound{
	{"requests in flight, gateway and check API each", "`in_flight`, by memory, up to {server/config.defaultInFlight}", "503", "TestInFlight, TestMaxInFlight, TestInstanceLimit"},
	{"their headers and bodies", "`in_flight_bytes`, an eighth of the memory", "503", "TestAttackSlowBodies, TestBytesOfBodies"},
	{"of these, one client", "three quarters, [less when busy](decisions/0020-room.md)", "503", "TestAttackUnfinishedUploads, TestGreedyClients"},
	{"connections of a listener", "`max_connections`, by memory, up to 50,000 and a third of `ulimit -n`", "closed", "TestMaxConnections, TestIdleConnections"},
	{"requests delayed by `shape`; one client", "`max_delayed`, {default.MaxDelayed}, for `max_delay`, {default.MaxDelay}; three quarters", "429, nothing charged", "TestShaping, TestShapeGivesUp, TestAttackShapeQueue, TestTurnsOfThoseThatLeave"},
	{"counts in memory; of shadow rules", "`max_keys`, by memory, up to {internal/counts.DefaultRoom}; half", "[least used evicted](#a-flood-of-invented-keys)", "TestFloodOfKeys, TestFloodThroughFallback, TestBytesOfACount, TestBytesOfARecord, TestShadowLeavesRoom"},
	{"holds in memory; of a key and limit", "a sixteenth of `max_keys`, at least 8,192; {internal/algo.MostHolds}", "[not decided](errors.md#st024-little-room-for-holds)", "TestBytesOfAHold, TestHoldsAreBounded, TestHoldsThatRanOutAreDropped, TestHoldsSettledElsewhere, TestManyHolds"},
	{"keys with a `lease`", "{fleet.DefaultMaxLeases}, of 256 bytes", "decided by the store", "TestLeasesFlood"},
	{"remembered refusals; bans", "`remembered_denials`, by memory, up to {fleet.DefaultMaxDenials}, of keys up to {fleet.longestRemembered B}", "one forgotten", "TestDenialsFlood"},
	{"spent while Redis is away; settlements it has not answered", "a 64th of the memory each, up to {fleet.DefaultMaxOwed B}", "not charged later", "TestLedgerIsBounded, TestBytesOfALedger, TestSettlementsBounded"},
	{"wait for the store, for each 64 limits of a list", "`decision_timeout`, {default.DecisionTimeout}", "`on_store_error`", "TestStoreHangs, TestFallbackBatchEnds, TestLists"},
	{"upstream's response begins; ends; at a stop", "[`upstream_timeout`](settings.md#upstream_timeout); `response_timeout`, none; `stop_timeout`, {default.StopTimeout}", "504, or cut off", "TestWhatSlowAnswersCost, TestResponseTimeout, TestResponseTimeoutOfGRPC, TestResponseTimeoutSparesUpgrades, TestServeCutsOff"},
	{"log lines of a rule's refusals; of all; other lines that callers cause", "`log.refusals`, 5 a second; 20 times that; one of a kind in {internal/logline.every}", "counted", "TestRefusalLinesAreBounded, TestRefusalLinesOfAllRules, TestAttackLog, TestLogEveryTenSeconds"},
	{"requests kept for previews; preview", "`recent_requests`, 4 MiB, {server/internal/dry.PreviewWindow}; one, {server/internal/dry.previewTimeout}, {server/config.MaxPreviewKeys} keys a set; peaks, 2 MiB", "a sample of clients; ends early; of fewer limits", "TestSampleIsConsistent, TestTooLarge, TestPreviewIsBounded"},
	{"unread log lines (half for access lines); spans to send", "{server.maxLogWaiting B}; {server/config.MaxSpans} of {server/config.spanBytes B}", "dropped, counted", "TestLogWriterBlocked, TestAccessLinesAreDroppedFirst, TestCollectorHangs"},
	{"offenders of each kind", "`offenders`, {default.Offenders}", "lightest replaced", "TestBytesOfOffenders, TestFloodOfOffenders, TestPartsAreBounded"},
	{"keys that alerts notice", "{server/internal/alerts.mostTold}", "noticed later, `stint_alert_keys_missed_total`", "TestBytesOfAlerts, TestUsageFlood"},
	{"webhook message", "one in {server/internal/alerts.Every}, {server/internal/alerts.mostItems} alerts of {server/internal/alerts.mostItemKeys} keys", "in the next", "TestWebhookIsAway, TestSlackIsBounded"},
	{"manual bans; overrides; silences; a list's networks; expressions added live", "{server/rules.MaxBans}; {server/rules.MaxOverrides}; {server/rules.MaxSilences}; {server/rules.MaxListedNetworks}; {server/rules.MaxListedMatches}", "refused", "TestQuotas"},
	{"`lists`; one; time to fetch its URL", "{server/config.maxLists}; {server/internal/lists.maxBytes B}, {server/internal/lists.maxEntries} networks; {server/internal/lists.fetchTimeout}, at the start {server/internal/lists.openTimeout} for all", "the previous networks stay; at the start none", "TestMostLists, TestFiles, TestFetches, TestMostEntries, TestFetchTimeout, TestOpenDoesNotWaitForOthers"},
	{"changes while the store is away", "{server/internal/control.maxPending}, 1 s each", "503", "TestChangesWithoutStoreBound"},
	{"`state_dir`", "{server/internal/control.maxState B}, twice while written", "logged; the previous file stays", "TestStateDir, TestStateFileHostile"},
	{"wrong admin tokens of an address", "30 a minute; {server/config.MaxWrongTokens} addresses", "429; when full, to new addresses", "TestAttackGuessedTokens, TestGuessesWhereTheTableIsFull"},
	{"streams of `GET /v1/live`; of one caller", "{server/internal/live.MaxStreams}; {server/internal/live.maxStreamsOfOne}", "503", "TestMostStreams, TestAttackStreamsOfOneCaller"},
	{"admin calls that read much, a kind of token; that compile rules", "{server/internal/admin.maxLarge}; one reading, one writing", "503 after {server/internal/admin.callTimeout}", "TestAttackLargeCalls, TestAttackRulesCheck"},
	{"Envoy: gRPC streams; of quotas; of one address", "{server/envoy.mostStreams}; {server/envoy/quota.DefaultMaxStreams}; three quarters", "`RESOURCE_EXHAUSTED`", "TestAttackStreams, TestBounds, TestAttackStreamsOfOneAddress"},
	{"Envoy: quota buckets (one more for each 256 bytes of identifier, at most 4 KiB); of a stream; of an address", "a 32nd of the memory, up to {server/envoy/quota.DefaultMaxBuckets}; a quarter; three quarters", "`no_assignment_behavior`", "TestBounds, TestAttackBucketsOfOneAddress, TestBytesOfASubscription"},
}

// TestBoundsTable holds the tables of docs/bounds.md and the code equal.
func TestBoundsTable(t *testing.T) {
	const page = "../../docs/bounds.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	made, c := string(text), newConstants()
	for name, rows := range map[string][]bound{"requests": boundsOfRequests, "rules": boundsOfRules, "instances": boundsOfInstances} {
		var b strings.Builder
		if name == "rules" { // the page says above the table what is beyond
			b.WriteString("| bound | at most |\n| --- | --- |\n")
		} else {
			b.WriteString("| bound | at most | beyond |\n| --- | --- | --- |\n")
		}
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s | %s |", c.fill(t, r.of), c.fill(t, r.most))
			if name != "rules" {
				fmt.Fprintf(&b, " %s |", c.fill(t, r.beyond))
			}
			b.WriteByte('\n')
		}
		made = golden.Between(t, made, name, b.String())
	}
	golden.File(t, page, golden.Between(t, made, "memory", fitted(t)))
}

// fitted is the table of what the bounds are that depend on the memory.
func fitted(t *testing.T) string {
	withFiles(t, 1<<20)
	rows := []struct {
		name string
		of   func(*Settings, *Footprint) string
	}{
		{"`max_keys`", func(s *Settings, _ *Footprint) string { return thousands(s.MaxKeys) }},
		{"`max_connections`", func(s *Settings, _ *Footprint) string { return thousands(s.MaxConnections) }},
		{"`instance.in_flight`", func(s *Settings, _ *Footprint) string { return thousands(s.Instance.InFlight) }},
		{"`remembered_denials`", func(s *Settings, _ *Footprint) string { return thousands(s.RememberedDenials) }},
		{"sum of all, MiB", func(_ *Settings, f *Footprint) string { return thousands(f.Sum() >> 20) }},
	}
	head, rule := "| memory |", "\n| --- |"
	lines := make([]string, len(rows))
	for _, mib := range []int64{512, 4096} {
		s := Default()
		s.Memory, s.Store = mib<<20, "redis://localhost"
		f := s.FitMemory()
		head += " " + ByteSize(s.Memory).String() + " |"
		rule += " --: |"
		for i, r := range rows {
			lines[i] += " " + r.of(&s, &f) + " |"
		}
	}
	var b strings.Builder
	b.WriteString(head + rule + "\n")
	for i, r := range rows {
		fmt.Fprintf(&b, "| %s |%s\n", r.name, lines[i])
	}
	return b.String()
}
