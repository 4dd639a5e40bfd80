package adminapi

import "time"

// AuditLog are the last changes in the fleet, the newest first: at most 1,000, of 14 days. The
// query of GET /v1/audit is limit, how many at most; default 50.
type AuditLog struct {
	Entries []AuditEntry `json:"entries"`
}

// AuditEntry is a change. Before and After are JSON, or empty. A text of more than 4 KiB is replaced by its
// length; the instance's log has all of it.
type AuditEntry struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	From   string    `json:"from"` // the address; empty: a waiting change was merged
	Action string    `json:"action"`
	// What is the subject of the change, such as "rule login, key 192.0.2.7" or "rule login: shadow". Empty:
	// not known, as for a waiting change that was merged.
	What   string `json:"what,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Decision is the ID of the decision that the caller named in the header Stint-Decision;
	// empty: none.
	Decision string `json:"decision,omitempty"`
	Before   string `json:"before,omitempty"`
	After    string `json:"after,omitempty"`
	// Pending says why the change was not in force everywhere then: it waits for the store, it is unknown
	// whether it was made, or it was dropped. Empty: it was in force.
	Pending string `json:"pending,omitempty"`
	Host    string `json:"host"` // of the instance that was called
}
