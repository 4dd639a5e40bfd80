package auth

import (
	"context"
	"encoding/hex"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/config"
)

// guesses bounds how many tokens a client can try. Each wrong token counts once, however often
// it is presented, so that a program with an outdated token does not shut out others at its
// address. A nil guesses bounds nothing. It may be used from many goroutines at once.
type guesses struct {
	mu     sync.Mutex     // a token is looked up and counted in one step
	counts *stint.Limiter // of clients
	same   *stint.Limiter // of their tokens: apart, so that many tokens leave room to count clients
	client func(*http.Request) string
}

var (
	wrongTokens = stint.MustLimit("wrong tokens: 30 per 1m")
	sameToken   = stint.MustLimit("the same token: 1 per 10m fixed_window")
)

// newGuesses counts by the client that sent a request; nil: by the address of its connection.
func newGuesses(client func(*http.Request) string) *guesses {
	if client == nil {
		client = func(r *http.Request) string {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			return host
		}
	}
	limiter := func() *stint.Limiter { return stint.NewLimiter(&stint.Memory{MaxKeys: config.MaxWrongTokens}) }
	return &guesses{counts: limiter(), same: limiter(), client: client}
}

// find looks a token up for the client that sent r. If that client has tried too many, or cannot be
// counted because too many others have, it finds none, not even the right one, and returns how long
// the client must wait.
func (g *guesses) find(r *http.Request, tokens *Tokens, token string) (found knownToken, ok bool, wait time.Duration) {
	if g == nil {
		found, ok = tokens.find(digestOf(token))
		return found, ok, 0
	}
	client, digest, ctx := g.client(r), digestOf(token), context.Background()
	g.mu.Lock()
	defer g.mu.Unlock()
	counted, err := g.counts.Allow(ctx, client, wrongTokens) // before it is known whether the token is right
	if err != nil || !counted.Allowed {
		return found, false, wrongTokens.Spec().Period / time.Duration(wrongTokens.Spec().Amount)
	}
	if found, ok = tokens.find(digest); !ok {
		// Without room to remember it, the token counts again.
		if first, err := g.same.Allow(ctx, client+"\x00"+hex.EncodeToString(digest[:]), sameToken); err != nil || first.Allowed {
			return found, false, 0
		}
	}
	_ = g.counts.Refund(ctx, counted, 1) // a Memory can refund
	return found, ok, 0
}
