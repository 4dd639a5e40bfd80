package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

func switchCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "switch [on|off|file | RULE enforce|shadow|off|file] [--reason TEXT]", Short: "show and set the kill switch and the modes of rules",
		Long: `Shows and sets the kill switch and the modes of rules. What is set here overrides the file.

"stint switch off" lets everything pass; "on" limits again, whatever the file says; "file"
returns to the file.`,
		Example: `  stint switch
  stint switch off --reason "the limits are wrong"
  stint switch login shadow`,
		ValidArgs:             []string{"on", "off", "file"},
		DisableFlagsInUseLine: true,
	}
	var body adminapi.SwitchesRequest
	reasonFlag(c.Flags(), &body.Reason)
	check := func(_ *cobra.Command, words []string) error {
		if len(words) == 0 && body.Reason != "" {
			return errors.New("--reason goes with a change")
		}
		return readSwitch(&body, words)
	}
	return adminCommand(c, check, func(ctx context.Context, a *admin, words []string) error {
		q := apiRequest{method: http.MethodGet, path: "/v1/switches"}
		if len(words) > 0 {
			q.method, q.body = http.MethodPatch, body
		}
		return exchange(ctx, a, q, func(w io.Writer, s adminapi.Switches) {
			if len(words) == 2 { // one rule was set, of maybe thousands
				s.Rules = slices.DeleteFunc(s.Rules, func(r adminapi.RuleSwitch) bool { return r.Name != words[0] })
			}
			printSwitches(w, s)
		})
	})
}

func readSwitch(body *adminapi.SwitchesRequest, words []string) error {
	switch len(words) {
	case 0:
	case 1:
		on, off := true, false
		value, ok := map[string]*bool{"on": &on, "off": &off, "file": nil}[words[0]]
		if !ok {
			return fmt.Errorf("%q: want on, off or file, or a rule's name and its mode", words[0])
		}
		body.Enabled = adminapi.Choose(value)
	case 2:
		body.Rules = map[string]*rules.Mode{words[0]: nil}
		if words[1] == "file" {
			break
		}
		mode, err := rules.ParseMode(words[1])
		if err != nil {
			return fmt.Errorf("mode %q: want enforce, shadow, off or file", words[1])
		}
		body.Rules[words[0]] = &mode
	default:
		return fmt.Errorf("unexpected argument %q", words[2])
	}
	return nil
}

func printSwitches(w io.Writer, s adminapi.Switches) {
	text := onOff(s.Enabled.Now)
	if !s.Enabled.Now {
		text += ", everything passes"
	}
	if s.Enabled.Set == nil {
		text += " (as the file says)"
	} else {
		text += fmt.Sprintf(" (set; the file says %s)", onOff(s.Enabled.File))
	}
	fmt.Fprintf(w, "limiting: %s\n", text)
	printReach(w, s.Reach)
	if len(s.Rules) == 0 {
		fmt.Fprintln(w, "no rules")
		return
	}
	t := table{heads: []string{"RULE", "NOW", "SET", "FILE"}}
	for _, r := range s.Rules {
		set := ""
		if r.Set != nil {
			set = *r.Set
		}
		t.row(shown(r.Name), shown(r.Now), shown(set), shown(r.File))
	}
	t.print(w)
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}
