package stint

import "github.com/stintdev/stint/internal/friend"

// Internal is for Stint's own packages, such as redislimit and fleet. Others cannot create
// its argument.
func Internal(friend.Of) internals { return internals{} }

// internals has methods that packages of Stint need and users do not, to keep the public API small. See
// docs/decisions/0012-library.md. internal_store.go is for redislimit and fleet, internal_door.go for
// httplimit and rpclimit, internal_server.go for package server.
type internals struct{}
