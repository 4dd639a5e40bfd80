package rpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rpclimit"
)

// Calls without a key are refused, share one count or pass, where they come in and where they leave.
func TestAnonymous(t *testing.T) {
	nobody := func(context.Context, *rpclimit.Call) string { return "" }
	for _, text := range []string{"a: 1 per 1h", "a: 1 in_flight"} {
		limit := stint.MustLimit(text)
		for anonymous, want := range map[stint.Anonymous][2]code.Code{
			stint.AnonymousRefuse: {code.Code_INVALID_ARGUMENT, code.Code_INVALID_ARGUMENT},
			stint.AnonymousShare:  {code.Code_OK, code.Code_RESOURCE_EXHAUSTED},
			stint.AnonymousAllow:  {code.Code_OK, code.Code_OK},
		} {
			gate := rpclimit.Server{Decide: rpclimit.By(nil, limit, nobody, anonymous)}.Gate()
			pacer := rpclimit.Client{Limit: limit, Key: nobody, Anonymous: anonymous, Refuse: true}.Pacer(delayOf)
			for i, want := range want {
				if _, refused := gate.Begin(t.Context(), new(rpclimit.Call)); codeOf(refused) != want {
					t.Errorf("%s, %s, call %d: %v", text, anonymous, i, refused)
				}
				if _, refused := pacer.Begin(t.Context(), new(rpclimit.Call)); codeOf(refused) != want {
					t.Errorf("%s, %s, outgoing call %d: %v", text, anonymous, i, refused)
				}
			}
			messages := rpclimit.Client{Messages: stint.MustLimit("m: 1 per 1h"), Key: nobody, Anonymous: anonymous, Refuse: true}.Pacer(delayOf)
			out, refused := messages.Begin(t.Context(), new(rpclimit.Call))
			if refused != nil {
				t.Fatal(refused)
			}
			for i, want := range want {
				if refused := out.Send("x", true); codeOf(refused) != want {
					t.Errorf("%s, message %d: %v", anonymous, i, refused)
				}
			}
		}
	}
}

func codeOf(r *rpclimit.Refusal) code.Code {
	if r == nil {
		return code.Code_OK
	}
	return r.Code
}
