package stint

import "github.com/stintdev/stint/internal/friend"

// Internal is for Stint's own packages, such as redislimit and fleet. Others cannot make its
// argument.
func Internal(friend.Of) internals { return internals{} }

// internals has what packages of Stint need and users do not, so that the public API is smaller. See
// docs/decisions/0012-library.md. internal_store.go has what redislimit and fleet call, internal_door.go
// what httplimit and rpclimit call, and internal_server.go the rest, for package server.
type internals struct{}
