package adminapi

import "time"

// SessionRequest signs a browser in.
type SessionRequest struct {
	Token string `json:"token"` // of server.admin.tokens
}

// Session says who calls.
type Session struct {
	Name  string `json:"name"`  // of the token or the client in the settings, or "local"
	Scope string `json:"scope"` // "read" or "write"
	// By is how the caller is known: by a "session", a "token", a "certificate" or, if the settings name no
	// callers, as "local".
	By string `json:"by"`
	// Until is when a session ends at the latest; nil: there is no session.
	Until *time.Time `json:"until,omitempty"`
}
