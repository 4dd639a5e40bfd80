package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
)

const switchAbout = `Shows and sets the kill switch, and the modes of rules, on top of the file.

    stint switch
    stint switch on|off|file
    stint switch RULE enforce|shadow|off|file

"stint switch off" lets everything pass; "on" limits again, whatever the file says;
"file" takes back what was set.
`

// switches are the kill switch and the modes of the rules.
type switches struct {
	Enabled struct {
		File bool  `json:"file"`
		Set  *bool `json:"set"`
		Now  bool  `json:"now"`
	} `json:"enabled"`
	Rules []struct {
		Name string  `json:"name"`
		File string  `json:"file"`
		Set  *string `json:"set"`
		Now  string  `json:"now"`
	} `json:"rules"`
	pending
}

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
		if reason != "" {
			body["reason"] = reason
		}
		q.method, q.body = http.MethodPatch, body
	}
	return exchange(ctx, a, out, q, tellSwitches)
}

// switchBody is what words ask to set: what is left out stays, nil is as the file
// says.
func switchBody(f *flag.FlagSet, words []string) (map[string]any, error) {
	body := map[string]any{}
	switch len(words) {
	case 0:
	case 1:
		value, ok := map[string]any{"on": true, "off": false, "file": nil}[words[0]]
		if !ok {
			return nil, wrong(f, "%q: want on, off or file, or a rule's name and its mode", words[0])
		}
		body["enabled"] = value
	case 2:
		if !slices.Contains([]string{"enforce", "shadow", "off", "file"}, words[1]) {
			return nil, wrong(f, "mode %q: want enforce, shadow, off or file", words[1])
		}
		var mode any = words[1]
		if mode == "file" {
			mode = nil
		}
		body["rules"] = map[string]any{words[0]: mode}
	default:
		return nil, wrong(f, "unexpected argument %q", words[2])
	}
	return body, nil
}

func tellSwitches(w io.Writer, s switches) {
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
	s.tell(w)
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
