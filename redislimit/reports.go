package redislimit

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

const (
	// maxReportParts is how many parts a report has at most.
	maxReportParts = 1000
	// maxReportText is the length of the longest part of a report, in bytes: 256 KiB.
	maxReportText = 256 << 10

	maxPartName = 200
	maxKeep     = 366 * 24 * time.Hour
	// replyBytes bounds the texts in one reply, because decisions on the same connection
	// wait for it. A reply is longer by at most one text.
	replyBytes = 256 << 10
)

var (
	//go:embed report.lua
	reportText string
	//go:embed reported.lua
	reportedText string
	//go:embed claim.lua
	claimText string

	reportScript   = conn.NewScript(reportText)
	reportedScript = conn.NewScript(reportedText)
	claimScript    = conn.NewScript(claimText)
)

// Names in these keys are checked like those of documents, and a letter precedes the colon, so
// no subject has such a key; see documentKey.

func (s *Store) reportKeys(name string) []string {
	key := s.namespace + ":{report:" + name + "}"
	return []string{key + "ends", key + "texts"}
}

func (s *Store) claimKey(name string) string { return s.namespace + ":{claim:" + name + "}" }

// Report writes a part of a report, replacing the part with that name. The part expires
// after keep, which is rounded up to a millisecond, by the server's clock. If the report has
// more than maxReportParts, those that expire first are dropped. Names of reports are those
// of documents; a part's name has 1 to 200 bytes, its text up to maxReportText.
//
// Invalid arguments give errors that wrap stint.ErrRequest. After another error, the part
// may have been written. Other instances are not notified: they call Reported.
func (d *documents) Report(ctx context.Context, name, part string, text []byte, keep time.Duration) error {
	if err := checkReport(name, part, keep); err != nil {
		return err
	}
	if len(text) > maxReportText {
		return fmt.Errorf("redislimit: %w: report %s: a part of %d bytes: at most %d", stint.ErrRequest, name, len(text), maxReportText)
	}
	keys := d.store.reportKeys(name)
	_, err := d.store.conn.Eval(ctx, reportScript, keys, part, string(text), millis(keep), strconv.Itoa(maxReportParts))
	return reportError(keys[0], err)
}

// Reported returns the parts of a report that have not expired, by their names. Parts that
// are written meanwhile may be missing. It calls the server once for about each 256 KiB.
func (d *documents) Reported(ctx context.Context, name string) (map[string][]byte, error) {
	if err := checkDocument(name); err != nil {
		return nil, err
	}
	keys, all := d.store.reportKeys(name), map[string][]byte{}
	for args := []string{strconv.Itoa(replyBytes)}; ; {
		reply, err := d.store.conn.Eval(ctx, reportedScript, keys, args...)
		if err != nil {
			return nil, reportError(keys[0], err)
		}
		lists, err := replied[[]any]("reported", reply)
		if err != nil {
			return nil, err
		}
		if len(lists) != 2 {
			return nil, fmt.Errorf("redislimit: reported: the script replied %d lists", len(lists))
		}
		texts, _ := lists[0].([]any)
		for i := 0; i+1 < len(texts); i += 2 {
			part, _ := texts[i].(string)
			text, _ := texts[i+1].(string)
			all[part] = []byte(text)
		}
		left, _ := lists[1].([]any)
		if len(left) == 0 {
			return all, nil
		}
		args = args[:1]
		for _, part := range left {
			part, _ := part.(string)
			args = append(args, part)
		}
	}
}

// Claim claims a name for who, for keep, which is rounded up to a millisecond, and reports
// whether who has it now: because it was free, or because who had it already; then Claim
// extends or shortens the claim. So of many callers that claim one name, one gets true. A
// claim expires by itself; a Redis that is flushed or fails over may lose it, and then a
// second caller gets true. Names are those of documents; who has 1 to 200 bytes.
func (d *documents) Claim(ctx context.Context, name, who string, keep time.Duration) (bool, error) {
	if err := checkReport(name, who, keep); err != nil {
		return false, err
	}
	key := d.store.claimKey(name)
	reply, err := d.store.conn.Eval(ctx, claimScript, []string{key}, who, millis(keep))
	if err != nil {
		return false, reportError(key, err)
	}
	has, err := replied[int64]("claim", reply)
	return has == 1, err
}

func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

func checkReport(name, part string, keep time.Duration) error {
	if err := checkDocument(name); err != nil {
		return err
	}
	if len(part) < 1 || len(part) > maxPartName {
		return fmt.Errorf("redislimit: %w: report or claim %s: the name of a part or claimant has %d bytes: must be 1 to %d", stint.ErrRequest, name, len(part), maxPartName)
	}
	if keep <= 0 || keep > maxKeep {
		return fmt.Errorf("redislimit: %w: report or claim %s: kept for %s: must be more than 0, at most %s", stint.ErrRequest, name, keep, maxKeep)
	}
	return nil
}

func reportError(key string, err error) error {
	if err == nil {
		return nil
	}
	if conn.IsWrongType(err) {
		return brokenKey(key, true)
	}
	return fmt.Errorf("redislimit: report: %w", err)
}
