package connectlimit_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/connectlimit"
	"github.com/stintdev/stint/httplimit"
)

// A Guard's refusal in a handler is a whole error with one call, in all protocols.
func TestRefuse(t *testing.T) {
	each(t, func(t *testing.T, w wire) {
		load := stint.Guard[string, int]{Limit: stint.MustLimit("load: 1 per 1h"), Message: "slow down", Key: func(_ context.Context, a string) string { return a }}.Wrap(
			func(context.Context, string) (int, error) { return 1, nil })
		failed := connect.NewError(connect.CodeDataLoss, errors.New("lost"))
		url := serve(t, service{unary: func(ctx context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
			_, err := load(ctx, r.Header().Get("X-User"))
			switch {
			case r.Header().Get("X-User") == "unlucky":
				return nil, connectlimit.Refuse(httplimit.XRateLimit, failed)
			case err != nil:
				return nil, connectlimit.Refuse(httplimit.XRateLimit, fmt.Errorf("load: %w", err))
			}
			return connect.NewResponse(r.Msg), connectlimit.Refuse(httplimit.XRateLimit, nil)
		}})
		c, ctx := dial(t, w, url), bounded(t)
		if _, err := c.call(ctx, "ann"); err != nil {
			t.Error(err)
		}
		_, err := c.call(ctx, "ann")
		wantCode(t, err, connect.CodeResourceExhausted)
		wait := retryAfter(err)
		if wait <= 0 || wait > time.Hour || meta(err, "Grpc-Retry-Pushback-Ms") != strconv.FormatInt(wait.Milliseconds(), 10) || meta(err, "X-RateLimit-Limit") != "1" ||
			meta(err, "Retry-After") == "" || !strings.Contains(err.Error(), "resource_exhausted: slow down") {
			t.Errorf("%s, %v", wait, err)
		}
		if v := detail[*errdetails.QuotaFailure](err).GetViolations(); len(v) != 1 || v[0].GetQuotaId() != "load" {
			t.Errorf("QuotaFailure %v", v)
		}
		_, err = c.call(ctx, "unlucky")
		wantCode(t, err, connect.CodeDataLoss)
	})
}
