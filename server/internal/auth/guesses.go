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
	mu     sync.Mutex // a token is looked up and counted in one step
	counts *stint.Limiter
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
	return &guesses{counts: stint.NewLimiter(&stint.Memory{MaxKeys: config.MaxWrongTokens}), client: client}
}

// find looks a token up for the client that sent r. If that client has tried too many, it finds
// none, not even the right one, and returns how long the client must wait.
func (g *guesses) find(r *http.Request, tokens *Tokens, token string) (found knownToken, ok bool, wait time.Duration) {
	if g == nil {
		found, ok = tokens.find(digestOf(token))
		return found, ok, 0
	}
	client, digest, ctx := g.client(r), digestOf(token), context.Background()
	g.mu.Lock()
	defer g.mu.Unlock()
	// Errors of a Memory are about keys that are too long, and these are not.
	left, err := g.counts.Peek(ctx, client, wrongTokens)
	if err != nil || left.Remaining == 0 {
		return found, false, wrongTokens.Spec().Period / time.Duration(wrongTokens.Spec().Amount)
	}
	if found, ok = tokens.find(digest); ok {
		return found, true, 0
	}
	if first, err := g.counts.Allow(ctx, client+"\x00"+hex.EncodeToString(digest[:]), sameToken); err == nil && first.Allowed {
		_, _ = g.counts.Allow(ctx, client, wrongTokens)
	}
	return found, false, 0
}
