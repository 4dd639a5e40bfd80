package envoy

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/stintdev/stint/server/config"
)

// A management server that sends nothing but what cannot be read fills no log.
func TestXDSComplainsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := &xdsClient{XDS: &config.XDS{}, log: slog.New(slog.NewTextHandler(&log, nil))}
		for i := range 300 {
			if c.offer(&discovery.DiscoveryResponse{VersionInfo: fmt.Sprint(i), Resources: []*anypb.Any{{TypeUrl: "another"}}}) == nil {
				t.Fatal("it was taken")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := strings.Count(log.String(), "\n"); n != 3 {
			t.Errorf("%d lines in 3 s", n)
		}
	})
}
