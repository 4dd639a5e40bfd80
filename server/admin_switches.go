package server

import (
	"net/http"
	"strings"

	"github.com/stintdev/stint/rules"
)

// switchesJSON are the kill switch and the modes: as the file says, as set at run
// time (null: not), and as it is now.
type switchesJSON struct {
	Enabled struct {
		File bool  `json:"file"`
		Set  *bool `json:"set"`
		Now  bool  `json:"now"`
	} `json:"enabled"`
	Rules   []ruleSwitchJSON `json:"rules"`
	Pending string           `json:"pending,omitempty"` // see banJSON
}

type ruleSwitchJSON struct {
	Name string  `json:"name"`
	File string  `json:"file"`
	Set  *string `json:"set"`
	Now  string  `json:"now"`
}

func (s *Server) showSwitches(*call) (int, any, error) {
	return http.StatusOK, s.switches(), nil
}

func (s *Server) switches() switchesJSON {
	now := s.state()
	j := switchesJSON{Rules: []ruleSwitchJSON{}}
	j.Enabled.File, j.Enabled.Set, j.Enabled.Now = now.base.Enabled, now.controls.Enabled, now.set.Enabled
	for i, r := range now.base.Rules {
		rule := ruleSwitchJSON{Name: r.Name, File: r.Mode.String(), Now: now.set.Rules[i].Mode.String()}
		if mode, ok := now.controls.Modes[r.Name]; ok {
			text := mode.String()
			rule.Set = &text
		}
		j.Rules = append(j.Rules, rule)
	}
	return j
}

// switching is what a caller wants to switch.
type switching struct {
	enabled    *bool
	setEnabled bool // enabled was given, perhaps as null
	modes      map[string]*rules.Mode
	reason     string
}

func (s *Server) setSwitches(c *call) (int, any, error) {
	want, err := c.switching()
	if err != nil {
		return 0, nil, err
	}
	if !want.setEnabled && len(want.modes) == 0 {
		return 0, nil, badCall("Nothing is to be switched: give enabled, or rules with their modes.")
	}
	before := s.switches()
	_, alone, err := commit(s, c, change[any]{"switch", want.reason, switchEdit{SetEnabled: want.setEnabled, Enabled: want.enabled, Modes: want.modes}})
	if err != nil {
		return 0, nil, err
	}
	after := s.switches()
	s.audit(c, "switch", want.reason, before, after, alone)
	after.Pending = aloneText(alone)
	return http.StatusOK, after, nil
}

// switching reads the body, in which null is not the same as nothing.
func (c *call) switching() (*switching, error) {
	want := &switching{modes: map[string]*rules.Mode{}}
	r, err := c.json()
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	names := []string{"enabled", "rules", "reason"}
	err = r.object(func(name string) error {
		if seen[name] {
			return badCall("%s is given twice.", name)
		}
		seen[name] = true
		switch name {
		case "enabled":
			want.setEnabled = true
			return r.orNull(func() error { return r.bool(&want.enabled) })
		case "rules":
			return want.readModes(r)
		case "reason":
			return r.orNull(func() error { return reasonField("reason", &want.reason).read(r) })
		}
		return unknownMember(name, names)
	})
	if err != nil {
		return nil, badCall("The JSON is not as it should be: %s.", err)
	}
	return want, nil
}

func (want *switching) readModes(r *reader) error {
	return r.object(func(rule string) error {
		if _, twice := want.modes[rule]; twice {
			return badCall("the rule %.60q is given twice", rule)
		}
		rule = strings.Clone(rule) // it is kept
		want.modes[rule] = nil
		return r.orNull(func() error {
			var text string
			if err := r.string(&text); err != nil {
				return err
			}
			mode, err := rules.ParseMode(text)
			want.modes[rule] = &mode
			return err
		})
	})
}
