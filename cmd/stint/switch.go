package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/adminapi"
)

const switchAbout = `Shows and sets the kill switch, and the modes of rules, on top of the file.

    stint switch
    stint switch on|off|file
    stint switch RULE enforce|shadow|off|file

"stint switch off" lets everything pass; "on" limits again, whatever the file says;
"file" takes back what was set.
`

// switchCommand shows the switches, and sets one before where it is told to.
func switchCommand(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("switch")
	a := adminFlags(f, errs)
	var reason string
	reasonFlag(f, &reason)
	words, err := parseWords(f, args, switchAbout, out)
	if err != nil {
		return err
	}
	body, err := switchBody(f, words)
	if err != nil {
		return err
	}
	if len(words) == 0 && reason != "" {
		return wrong(f, "--reason goes with a change")
	}
	if err := a.open(f); err != nil {
		return err
	}
	q := question{method: http.MethodGet, path: "/v1/switches"}
	if len(words) > 0 {
		body.Reason = reason
		q.method, q.body = http.MethodPatch, body
	}
	return exchange(ctx, a, out, q, tellSwitches)
}

// switchBody is what words ask to set.
func switchBody(f *flag.FlagSet, words []string) (body adminapi.SwitchesRequest, err error) {
	switch len(words) {
	case 0:
	case 1:
		on, off := true, false
		value, ok := map[string]*bool{"on": &on, "off": &off, "file": nil}[words[0]]
		if !ok {
			return body, wrong(f, "%q: want on, off or file, or a rule's name and its mode", words[0])
		}
		body.Enabled = adminapi.Choose(value)
	case 2:
		body.Rules = map[string]*rules.Mode{words[0]: nil}
		if words[1] == "file" {
			break
		}
		mode, err := rules.ParseMode(words[1])
		if err != nil {
			return body, wrong(f, "mode %q: want enforce, shadow, off or file", words[1])
		}
		body.Rules[words[0]] = &mode
	default:
		return body, wrong(f, "unexpected argument %q", words[2])
	}
	return body, nil
}

func tellSwitches(w io.Writer, s adminapi.Switches) {
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
	tellReach(w, s.Reach)
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
