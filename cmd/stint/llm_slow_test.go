package main

import (
	"bytes"
	"slices"
	"testing"
)

// A whole answer may take as long as the clients of OpenAI and Anthropic wait. On a route that waits less,
// a client gets 504, and pays what it held.
func TestLLMSlowAnswers(t *testing.T) {
	t.Parallel()
	l, hasty := startLLM(t), startLLM(t, "upstream_timeout: 10m", "upstream_timeout: 100ms")
	var got, failed map[string]clientSaw
	l.play("slow", &got)
	hasty.play("slow", &failed)
	for _, form := range bothForms {
		if s := got[form.rule]; s.Error != "" || !slices.Equal(s.Statuses, []int{200}) || !bytes.Contains(s.Value, []byte(`_tokens":1200`)) {
			t.Errorf("%s: %+v", form.rule, s)
		}
		l.used(form, "slow", 3+5*1200)
		s := failed[form.rule]
		if s.Status != 504 || !slices.Equal(s.Statuses, []int{504}) {
			t.Errorf("%s, hasty: %+v", form.rule, s)
		}
		hasty.used(form, "slow", 5*1200+(s.Bytes+3)/4)
	}
}
