package server_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/adminapi"
)

// peaksOf are the peaks that a preview of rules says, by rule, tier and index.
func peaksOf(p *adminapi.Preview) map[string]adminapi.PreviewPeaks {
	all := map[string]adminapi.PreviewPeaks{}
	for _, of := range p.Peaks {
		name := of.Rule
		if of.Tier != "" {
			name += "@" + of.Tier
		}
		all[fmt.Sprint(name, " ", of.Index)] = of
	}
	return all
}

// A preview says how many keys each amount of a limit would leave untouched, whatever was refused.
func TestPreviewPeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `rules: [{name: login, key: client.ip, limits: [2 per 1m]}]`)
		o := operator{t, s.Admin()}
		o.want(201, "POST", "/v1/overrides", `{"rule":"login","key":"192.0.2.9","times":9}`)
		time.Sleep(time.Minute)
		for i := range 30 { // the i-th client comes i times in a second, and again after a minute
			for range i + 1 {
				outcome(t, s, fmt.Sprintf(`{"client":"192.0.2.%d"}`, i))
			}
		}
		time.Sleep(2 * time.Minute)
		for i := range 30 {
			outcome(t, s, fmt.Sprintf(`{"client":"192.0.2.%d"}`, i))
		}
		p := o.preview(`rules: [{name: login, key: client.ip, limits: [12 per 1m, 100 per 1h]}, {name: idle, match: 'false || client.ip == "10.0.0.1"', limits: [5 per 1m]}]`)
		if len(p.Peaks) != 2 || p.MorePeaks != 0 || time.Duration(p.Span)*time.Microsecond != 2*time.Minute {
			t.Fatalf("%+v", p)
		}
		minute, hour := p.Peaks[0], p.Peaks[1]
		if minute.Limit != "12 per 1m" || minute.Amount != 12 || minute.Period != 60_000_000 || minute.AtLeast || minute.Unmeasured != "" {
			t.Errorf("%+v", minute)
		}
		// The key of the override has other limits.
		if minute.Keys != 29 || len(minute.Top) != 10 || minute.Top[0] != (adminapi.PreviewPeak{Key: "192.0.2.29", Peak: 30}) || minute.Top[9].Peak != 21 {
			t.Errorf("%+v", minute)
		}
		for _, point := range minute.Curve {
			if want := min(point[0], 30) - map[bool]int64{true: 1}[point[0] >= 10]; point[1] != want {
				t.Errorf("%d keys have at most %d, want %d", point[1], point[0], want)
			}
		}
		if minute.Suggested == nil || *minute.Suggested != (adminapi.PreviewSuggestion{Amount: 30, Share: 0.8}) { // 25 and a fifth
			t.Errorf("%+v", minute.Suggested)
		}
		if !hour.AtLeast || hour.Suggested != nil || hour.Top[0].Peak != 31 {
			t.Errorf("%+v", hour)
		}
	})
}

// Where the text has the amount of a limit, in each form of it, and where it has none.
func TestPreviewPlaces(t *testing.T) {
	const text = `
tiers:
  gold: attrs.plan == "gold"
  free: attrs.plan == "free"
rules:
  - name: forms
    key: '"all"'
    limits:
      - 100 per 1m
      - "90 per 2m"
      - '80 per 3m sliding_log'
      - {amount: 70, period: 4m}
      - algorithm: fixed_window
        period: 5m
        amount:   60
      - |
        50 per 6m
      - >-
        40
        per 7m
      - "\x33\x30 per 8m"
      - 10 per 1s burst 5
    tiers:
      gold: {limits: [1000 per 1m]}
      free: {times: 2}
  - {name: wide, match: '"全部🙂" != ""', limits: [8 per 1m]}
`
	s := newServer(t, `rules: []`)
	for _, plan := range []string{"none", "gold", "free"} {
		outcome(t, s, fmt.Sprintf(`{"client":"192.0.2.1","attrs":{"plan":%q}}`, plan))
	}
	p := operator{t, s.Admin()}.preview(text)
	lines, all := strings.Split(text, "\n"), peaksOf(&p)
	for name, want := range map[string]string{
		"forms 0": "100", "forms 1": "90", "forms 2": "80", "forms 3": "70", "forms 4": "60", "forms 5": "50",
		"forms 6": "", "forms 7": "", "forms 8": "", "forms@gold 0": "1000", "forms@free 0": "", "wide 0": "8",
	} {
		of, known := all[name]
		got := ""
		if at := of.Place; at != nil {
			line := []rune(lines[at.Line-1])
			got = string(line[at.Column-1 : at.Column-1+at.Length])
		}
		if !known || got != want {
			t.Errorf("%s: %q at %+v, want %q; %v", name, got, of.Place, want, known)
		}
	}
	if all["forms 8"].Unmeasured != "capacity" || all["forms@free 0"].Amount != 200 {
		t.Errorf("%+v", all)
	}
}

// Who previews rules chooses their keys. So a preview shows no key that may be a credential, unless the rules in force
// have it, too.
func TestPreviewShowsNoCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `rules: [{name: api, key: sha256(request.credential), limits: [2 per 1m]}, {name: plan, key: attrs.plan, limits: [9 per 1m]}, {name: off, key: attrs.email, limits: [9 per 1m], mode: off}]`)
		outcome(t, s, `{"client":"192.0.2.1","attrs":{"plan":"gold","email":"ann@example.com"},"request":{"method":"GET","path":"/a","headers":{"authorization":["Bearer s3cr3t"]}}}`)
		for key, want := range map[string]string{
			"request.credential":               "#1",
			`request.headers["authorization"]`: "#1",
			"attrs.email":                      "#1",
			"'[client.ip, attrs.email]'":       "#1",
			"sha256(request.credential)":       fmt.Sprintf("%x", sha256.Sum256([]byte("s3cr3t"))),
			"attrs.plan":                       "gold",
			"client.ip":                        "192.0.2.1",
			"request.path":                     "/a",
			`'"all"'`:                          "all",
			"'client.ip == \"10.0.0.1\" ? \"x\" : request.credential'": "#1",
		} {
			p := operator{t, s.Admin()}.preview("rules:\n  - name: new\n    key: " + key + "\n    limits: [5 per 1m]\n")
			if len(p.Peaks) != 1 || len(p.Peaks[0].Top) != 1 || string(p.Peaks[0].Top[0].Key) != want || p.Peaks[0].Numbered != (want == "#1") {
				t.Errorf("key %s: %+v, want %s", key, p.Peaks, want)
			}
		}
	})
}
