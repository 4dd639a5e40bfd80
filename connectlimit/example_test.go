package connectlimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/connectlimit"
	"github.com/stintdev/stint/rpclimit"
)

// Two calls an hour for each user, and a client that reads why a call is refused.
func Example() {
	limits := connectlimit.Server(rpclimit.Server{
		Decide: rpclimit.By(nil, stint.MustLimit("api: 2 per 1h"), rpclimit.Metadata("x-user")),
	})
	ping := func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(new(emptypb.Empty)), nil
	}
	mux := http.NewServeMux()
	mux.Handle("/ping.v1.Ping/Ping", connect.NewUnaryHandler("/ping.v1.Ping/Ping", ping, connect.WithInterceptors(limits)))
	server := httptest.NewServer(mux)
	defer server.Close()

	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+"/ping.v1.Ping/Ping")
	for range 3 {
		request := connect.NewRequest(new(emptypb.Empty))
		request.Header().Set("X-User", "ann")
		response, err := client.CallUnary(context.Background(), request)
		var refused *connect.Error
		if !errors.As(err, &refused) {
			fmt.Println("remaining", response.Header().Get("X-RateLimit-Remaining"))
			continue
		}
		fmt.Println(refused.Code())
		for _, d := range refused.Details() {
			if v, _ := d.Value(); v != nil {
				if info, ok := v.(*errdetails.RetryInfo); ok {
					fmt.Println("retry after", info.GetRetryDelay().AsDuration().Round(time.Minute))
				}
			}
		}
	}
	// Output:
	// remaining 1
	// remaining 0
	// resource_exhausted
	// retry after 30m0s
}
