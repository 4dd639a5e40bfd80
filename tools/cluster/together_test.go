package main

import (
	"strings"
	"testing"
)

// Two files of values may say opposite things. A gateway that is off has no address that other pods reach, even if
// an upstream or routes are there.
func TestGatewayOff(t *testing.T) {
	t.Parallel()
	r := aRelease("gateway.yaml", "check.yaml")
	r.set = []string{"config.server.routes[0].path=/", "config.server.routes[0].upstream=http://shop"}
	deployment := only(t, r.must(t), "Deployment").text
	if strings.Contains(deployment, "--upstream") || !strings.Contains(deployment, `{name: STINT_SERVER_LISTEN, value: "127.0.0.1:8080"}`) {
		t.Error(deployment)
	}
}
