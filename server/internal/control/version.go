package control

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// The documents of a fleet.
const (
	rulesDocument    = "rules"
	controlsDocument = "controls"
)

// maxDocument is the size of the largest document, in bytes, as in Redis.
const maxDocument = 4 << 20

// Version is a version of either document.
type Version struct {
	Number int64     `json:"-"` // 0: there is none
	Author string    `json:"author"`
	Note   string    `json:"note,omitempty"`
	At     time.Time `json:"at"`
	// One is given: Text, the rules file, or Controls, the changes made at run time.
	Text     string          `json:"text,omitempty"`
	Controls *rules.Controls `json:"controls,omitempty"`
	// Applied are the IDs of the changes that made this version of the controls and earlier ones, the newest
	// 1,000.
	Applied []string `json:"applied,omitempty"`

	data   []byte // as it is stored
	digest string // of data
}

// document is the version of a document last seen by this instance.
type document struct {
	name string
	seen Version
	// savedAt is when seen was read from the store, if it comes from the state file and the store has not
	// been read since; else zero.
	savedAt time.Time
	take    func(*Version)
}

// parseVersion reads a version as it is stored.
func parseVersion(number int64, data []byte) (*Version, error) {
	v := &Version{Number: number, data: data, digest: digest(data)}
	if err := json.Unmarshal(data, v); err != nil {
		return nil, fmt.Errorf("version %d: %w", number, err)
	}
	return v, nil
}

// encode sets data.
func (v *Version) encode() (err error) {
	v.data, err = json.Marshal(v)
	v.digest = digest(v.data)
	return err
}

// digest is the SHA-1 of a text, in hexadecimal digits.
func digest(text []byte) string {
	sum := sha1.Sum(text)
	return hex.EncodeToString(sum[:])
}

// is reports whether both are the same version.
func (v *Version) is(other *Version) bool {
	return v.Number == other.Number && v.digest == other.digest
}

// after is the time for a version that follows v: now, but always later than v's, even if clocks differ.
func (v *Version) after(now time.Time) time.Time {
	now = now.UTC()
	if least := v.At.Add(time.Microsecond); now.Before(least) {
		return least
	}
	return now
}

// controls are a copy of those in v, to be edited.
func (v *Version) controls() *rules.Controls {
	if v.Controls == nil {
		return &rules.Controls{}
	}
	return v.Controls.Clone()
}

// split separates the changes that v, or an earlier version, already has from the others.
func (v *Version) split(waiting changes) (done, rest changes) {
	for _, p := range waiting {
		if slices.Contains(v.Applied, p.ID) {
			done = append(done, p)
		} else {
			rest = append(rest, p)
		}
	}
	return done, rest
}

// apply records that all made v, on top of before.
func (v *Version) apply(before *Version, all changes) {
	v.Applied = slices.Clone(before.Applied)
	for _, p := range all {
		v.Applied = append(v.Applied, p.ID)
	}
	if old := len(v.Applied) - maxPending; old > 0 {
		v.Applied = v.Applied[old:]
	}
}
