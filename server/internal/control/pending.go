package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// Change is a change of the controls. A change that the store does not have yet is pending. It is an edit and
// not a whole document, so that it can be made on top of concurrent changes by others. Of two changes of one
// entry at two instances, the one merged later wins.
//
// Pending changes are saved in StateDir. Without one, they are lost when the instance ends
// before its store is back.
type Change struct {
	// ID is stored with the change in Version.Applied. It identifies a change whose write was
	// not answered, so that it is not made twice. Control.Change sets it and At.
	ID string
	At time.Time
	// Who made the change, by which action, and why, for the log.
	Who, Action, Reason string
	Edit                Edit
}

// savedChange is a Change in the state file.
type savedChange struct {
	ID, Who, Action, Reason string
	At                      time.Time
	Kind                    string // one of editKinds
	Edit                    json.RawMessage
}

// MarshalJSON returns c in the form that UnmarshalJSON reads.
func (c *Change) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(c.Edit)
	if err != nil {
		return nil, err
	}
	return json.Marshal(savedChange{c.ID, c.Who, c.Action, c.Reason, c.At, c.Edit.kind(), text})
}

// UnmarshalJSON reads the result of MarshalJSON.
func (c *Change) UnmarshalJSON(text []byte) error {
	var s savedChange
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*c = Change{ID: s.ID, Who: s.Who, Action: s.Action, Reason: s.Reason, At: s.At}
	read := editKinds[s.Kind]
	if read == nil {
		return fmt.Errorf("unknown kind of change %.40q", s.Kind)
	}
	var err error
	c.Edit, err = read(s.Edit)
	return err
}

// changes are in order, the oldest first.
type changes []*Change

// maxPending bounds the changes that wait for the store.
const maxPending = 1000

// authors are the authors of the changes, each once.
func (all changes) authors() string {
	return all.each(func(c *Change) string { return c.Who })
}

// actions are the actions of the changes, each once.
func (all changes) actions() string {
	return all.each(func(c *Change) string { return c.Action })
}

func (all changes) each(text func(*Change) string) string {
	var texts []string
	for _, c := range all {
		if t := text(c); !slices.Contains(texts, t) {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, ", ")
}

// droppedChange is a change that no longer applies, and why.
type droppedChange struct {
	*Change
	why error
}

// mergeInto makes the changes to controls that still apply.
func (all changes) mergeInto(controls *rules.Controls) (merged changes, dropped []droppedChange) {
	for _, c := range all {
		before := controls.Clone()
		if _, _, err := c.Edit.apply(controls); err != nil {
			*controls = *before
			dropped = append(dropped, droppedChange{c, err})
			continue
		}
		merged = append(merged, c)
	}
	return merged, dropped
}
