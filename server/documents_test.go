package server_test

import (
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
)

// Redis is where a fleet keeps its documents.
var _ server.Documents = (*redislimit.Store)(nil).Documents()
