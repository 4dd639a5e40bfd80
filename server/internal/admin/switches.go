package admin

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/internal/strictjson"
	"github.com/stintdev/stint/server/rules"
)

func (a *API) showSwitches(*call) (int, any, error) {
	return http.StatusOK, a.switches(), nil
}

func (a *API) switches() adminapi.Switches {
	now := a.Control.Status()
	j := adminapi.Switches{Rules: []adminapi.RuleSwitch{}}
	j.Enabled = adminapi.EnabledSwitch{File: now.Base.Enabled, Set: now.Controls.Enabled, Now: now.Set.Enabled}
	for i, r := range now.Base.Rules {
		rule := adminapi.RuleSwitch{Name: r.Name, File: r.Mode.String(), Now: now.Set.Rules[i].Mode.String()}
		if mode, ok := now.Controls.Modes[r.Name]; ok {
			text := mode.String()
			rule.Set = &text
		}
		j.Rules = append(j.Rules, rule)
	}
	return j
}

func (a *API) setSwitches(c *call) (int, any, error) {
	in, err := c.switches()
	if err != nil {
		return 0, nil, err
	}
	if !in.Enabled.Given && len(in.Rules) == 0 {
		return 0, nil, badCall("Nothing is to be switched: give enabled, or rules with their modes.")
	}
	before := a.switches()
	done, err := a.change(c, "switch", in.Reason, control.Switch{SetEnabled: in.Enabled.Given, Enabled: in.Enabled.Value, Modes: in.Rules})
	if err != nil {
		return 0, nil, err
	}
	after := a.switches()
	a.Audit.change(c, "switch", switched(in), in.Reason, before, after, done.Alone)
	after.Reach = reach(done.Alone)
	return http.StatusOK, after, nil
}

// switched describes in for the audit log.
func switched(in *adminapi.SwitchesRequest) string {
	var all []string
	if in.Enabled.Given {
		state := "as the file says"
		if on := in.Enabled.Value; on != nil {
			state = map[bool]string{true: "on", false: "off"}[*on]
		}
		all = append(all, "limiting: "+state)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Rules)) {
		mode := "as the file says"
		if m := in.Rules[name]; m != nil {
			mode = m.String()
		}
		all = append(all, "rule "+name+": "+mode)
	}
	return strings.Join(all, ", ")
}

// switches reads the body, in which null differs from a missing member.
func (c *call) switches() (*adminapi.SwitchesRequest, error) {
	in := &adminapi.SwitchesRequest{Rules: map[string]*rules.Mode{}}
	r, err := c.json()
	if err != nil {
		return nil, err
	}
	names := []string{"enabled", "rules", "reason"}
	err = r.FieldsAndNulls(names, func(i int) error {
		switch names[i] {
		case "enabled":
			in.Enabled.Given = true
			return r.OrNull(func() error {
				in.Enabled.Value = new(bool)
				return r.ReadBool(in.Enabled.Value)
			})
		case "rules":
			return readModes(r, in.Rules)
		}
		return r.OrNull(func() error { return readMember(r, names[i], &in.Reason) })
	})
	if err != nil {
		return nil, badCall("The body is not a valid request: %s.", err)
	}
	return in, nil
}

// readModes stores the members of an object: modes by the names of rules, nil for null.
func readModes(r *strictjson.Reader, to map[string]*rules.Mode) error {
	return r.Object(func(rule string) error {
		if _, twice := to[rule]; twice {
			return fmt.Errorf("the rule %.60q is given twice", rule)
		}
		rule = strings.Clone(rule) // it is kept
		to[rule] = nil
		return r.OrNull(func() error {
			text, err := r.Text()
			if err != nil {
				return err
			}
			mode, err := rules.ParseMode(text)
			to[rule] = &mode
			return err
		})
	})
}
