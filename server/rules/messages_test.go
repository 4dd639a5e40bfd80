package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

func TestMessages(t *testing.T) {
	set, err := rules.Parse("r.yaml", []byte(`
rules:
  - name: login
    key: client.ip
    limits: [5 per 1m, 9 per 1h]
    penalty: {warn_after: 3, ban_after: 5, ban_for: 30m}
    message: "{retry_after}, {violations} of {ban_after}"
    messages:
      warned: {en: "{violations} of {ban_after}", de: "{violations} von {ban_after}", zh: "{violations} 次, {retry_after}", zh-Hant: "{violations} 次數, {retry_after}", pt-BR: "{violations} vezes"}
      banned: {de: "{violations}, {ban_left}, {limit}"}
      banned_by_hand: "by hand, {ban_left}"
`))
	if err != nil {
		t.Fatal(err)
	}
	m, p, l := set.Rules[0].Messages, set.Rules[0].Penalty, set.Rules[0].Limits[1]
	warned := stint.Decision{Outcome: stint.Warned, Limit: l, Violations: 3, Penalty: p, RetryAfter: 90 * time.Second}
	imposed := stint.Decision{Outcome: stint.Banned, Limit: l, Violations: 5, Penalty: p, RetryAfter: time.Hour, BanLeft: time.Hour}
	running := stint.Decision{Outcome: stint.Banned, Penalty: p, RetryAfter: time.Minute, BanLeft: time.Minute}
	limited := stint.Decision{Outcome: stint.Limited, Limit: l, Violations: 1, Penalty: p}
	for _, c := range []struct {
		d         stint.Decision
		byHand    bool
		languages string
		want      string
	}{
		{warned, false, "", "3 of 5"},
		{warned, false, "de", "3 von 5"},
		{warned, false, "de-AT, en;q=0.9", "3 von 5"},
		{warned, false, "fr, ja;q=0.9", "3 of 5"},
		{warned, false, "fr, zh-CN;q=0.9, en;q=0.8", "3 次, 1 分钟 30 秒"},
		{warned, false, "zh-TW", "3 次數, 1 分鐘 30 秒"},
		{warned, false, "pt", "3 vezes"},
		{warned, false, "de;q=0, *", "3 of 5"},
		{warned, false, "@@@;;;q=q", "3 of 5"},
		{warned, false, "de" + strings.Repeat(", de", 1000), "3 of 5"},
		{imposed, false, "en", "5, 1h, 9 per 1h"},
		{running, false, "en", "5, 1m, 5 per 1m, 9 per 1h"},
		{running, true, "en", "by hand, 1m"},
		{stint.Decision{Outcome: stint.Banned, RetryAfter: stint.Never, BanLeft: stint.Never}, true, "", "by hand, ∞"},
		{limited, false, "de", "1s, 1 of 5"},
	} {
		if got := m.Text(&c.d, c.byHand, c.languages); got != c.want {
			t.Errorf("%s to %.30q: %q, want %q", c.d.Outcome, c.languages, got, c.want)
		}
	}
	for wait, want := range map[time.Duration]string{
		1: "1s", time.Second: "1s", time.Second + 1: "2s", 59*time.Second + 1: "1m", 61 * time.Second: "1m 1s",
		time.Hour - 1: "1h", 61*time.Minute - 1: "1h 1m", 24*time.Hour - 1: "1d", 25*time.Hour + 1: "1d 2h",
		stint.Never: "∞", stint.Never - 1: "106752d",
	} {
		limited.RetryAfter = wait
		if got := m.Text(&limited, false, ""); got != want+", 1 of 5" {
			t.Errorf("%s: %q, want %q", wait, got, want)
		}
	}
	remembered := imposed
	remembered.Remembered = true
	for _, texts := range []struct {
		messages             string
		began, ran, ranTwice string // the last is remembered by an instance
	}{
		{"messages: {banned: now, still_banned: '{ban_left} left'}", "now", "1m left", "1h left"},
		{"messages: {still_banned: still}", "", "still", "still"},
		{"messages: {banned: banned}", "banned", "banned", "banned"},
		{"message: any, messages: {still_banned: '还剩 {ban_left}'}", "any", "还剩 1 分钟", "还剩 1 小时"},
	} {
		set, err := rules.Parse("r.yaml", []byte("rules: [{name: a, key: client.ip, limits: [5 per 1m], penalty: {ban_after: 5, ban_for: 30m}, "+texts.messages+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		m := set.Rules[0].Messages
		if began, ran, again := m.Text(&imposed, false, ""), m.Text(&running, false, ""), m.Text(&remembered, false, ""); began != texts.began || ran != texts.ran || again != texts.ranTwice {
			t.Errorf("%s: %q, %q, %q", texts.messages, began, ran, again)
		}
		if got := m.Text(&running, true, ""); strings.Contains(got, "still") || strings.Contains(got, "left") {
			t.Errorf("%s: by hand: %q", texts.messages, got)
		}
	}
	if (*rules.Messages)(nil).Text(&warned, false, "de") != "" {
		t.Error("no messages have a text")
	}
}
