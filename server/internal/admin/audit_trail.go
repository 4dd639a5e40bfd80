package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/internal/reports"
)

// Trail keeps the last changes in the fleet, for GET /v1/audit. Every instance adds its own to one report,
// with a part for each change. The log has the same changes in more detail, and survives a flush of the
// store.
//
// A change is added in the background. If the store does not answer, the Trail keeps the change
// in memory and tries again until Close. It may be used from many goroutines at once.
type Trail struct {
	Reports reports.Reports
	Host    string           // of this instance
	Now     func() time.Time // the time of the fleet
	Failed  func(error)      // is called if the store does not take a change

	mu      sync.Mutex
	waiting []adminapi.AuditEntry // not yet in Reports, in the order in which they were made
	writing bool                  // a goroutine adds them
	closed  bool
	end     context.CancelFunc // ends the pause before the next attempt; nil: there is none
	writer  sync.WaitGroup
}

const (
	trailReport = "audit"
	// keepTrail is how long a change is kept, unless reports.MaxParts later ones push it out.
	keepTrail = 14 * 24 * time.Hour
	// maxTrailed bounds, in bytes, each of the texts of a change that may be long. So the
	// largest Trail has less than 10 MiB.
	maxTrailed = 4 << 10
	// mostWaiting bounds the changes that wait for the store. The oldest make room.
	mostWaiting = reports.MaxParts

	trailTimeout = time.Second     // of an attempt to write waiting changes
	trailPause   = 5 * time.Second // between two attempts
)

// add adds a change, to which it gives an ID, the time and the host.
func (t *Trail) add(e adminapi.AuditEntry) {
	e.ID, e.At, e.Host = control.NewID(), t.Now().UTC(), t.Host
	e.Before, e.After, e.Pending = brief(e.Before), brief(e.After), clip(e.Pending)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if len(t.waiting) == mostWaiting { // the oldest
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
	t.waiting = append(t.waiting, e)
	if !t.writing {
		t.writing = true
		t.writer.Go(t.write)
	}
}

// brief is a JSON text or, if it is too long to be kept, a JSON text about its length.
func brief(text string) string {
	if len(text) <= maxTrailed {
		return text
	}
	return fmt.Sprintf(`"%d bytes, which only the log has"`, len(text))
}

// clip shortens a text that only people read.
func clip(text string) string {
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason], "") + " …"
}

// write adds the waiting changes, until none is left or the Trail is closed. Then it makes one more attempt.
func (t *Trail) write() {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), trailTimeout)
		err := t.writeWaiting(ctx)
		cancel()
		t.mu.Lock()
		if err == nil && len(t.waiting) > 0 && !t.closed {
			t.mu.Unlock()
			continue // changes may have been added meanwhile
		}
		if err == nil || t.closed {
			t.writing = false
			t.mu.Unlock()
			return
		}
		pause, end := context.WithTimeout(context.Background(), trailPause)
		t.end = end
		t.mu.Unlock()
		t.Failed(err)
		<-pause.Done()
		end()
	}
}

// writeWaiting adds the changes that wait now.
func (t *Trail) writeWaiting(ctx context.Context) error {
	for {
		t.mu.Lock()
		if len(t.waiting) == 0 {
			t.mu.Unlock()
			return nil
		}
		e := t.waiting[0]
		t.mu.Unlock()
		text, err := json.Marshal(e)
		if err != nil {
			panic(err) // strings and a time always marshal
		}
		if err := t.Reports.Report(ctx, trailReport, e.ID, text, keepTrail); err != nil {
			return err
		}
		t.mu.Lock()
		if len(t.waiting) > 0 && t.waiting[0].ID == e.ID { // else it was dropped to make room
			t.waiting = slices.Delete(t.waiting, 0, 1)
		}
		t.mu.Unlock()
	}
}

// Close makes a last attempt to add the waiting changes, and returns after it. Later changes are not added.
func (t *Trail) Close() {
	t.mu.Lock()
	t.closed = true
	if t.end != nil {
		t.end()
	}
	t.mu.Unlock()
	t.writer.Wait()
}

// last returns the newest changes in the fleet, the newest first, at most limit. This instance's are included
// even if the store does not have them yet.
func (t *Trail) last(ctx context.Context, limit int) ([]adminapi.AuditEntry, error) {
	t.mu.Lock()
	waiting := slices.Clone(t.waiting) // before the store is read, so that no change is missed
	t.mu.Unlock()
	parts, err := t.Reports.Reported(ctx, trailReport)
	if err != nil {
		return nil, err
	}
	all := make([]adminapi.AuditEntry, 0, len(parts))
	for id, text := range parts {
		var e adminapi.AuditEntry
		if err := json.Unmarshal(text, &e); err != nil || e.ID != id {
			continue // from a later release, or from an unknown writer
		}
		all = append(all, e)
	}
	for _, e := range waiting {
		if _, ok := parts[e.ID]; !ok {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b adminapi.AuditEntry) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.ID, b.ID))
	})
	return all[:min(limit, len(all))], nil
}

// errorIn returns the text of the error among the arguments of a log line; empty: there is none.
func errorIn(args []any) string {
	for _, a := range args {
		if err, ok := a.(error); ok {
			return err.Error()
		}
	}
	return ""
}
