package rules_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/errorformat"
	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/server/rules"
)

// TestGolden parses the rules files in testdata/*.txt. Each file there tells
// stories: a line "=== what it shows", a rules file, a line "---", and what Parse
// says of it, which -update rewrites for a person to read.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			golden.Run(t, path, func(_ *testing.T, file string) string { return outcome(file) })
		})
	}
}

// outcome is the set, or what is wrong with the file. In a story \r, \t, \xff and
// the like stand for what an editor would not show.
func outcome(file string) string {
	for _, escape := range []struct{ written, meant string }{
		{"«CR»", "\r"}, {"«TAB»", "\t"}, {"«FF»", "\xff"}, {"«NUL»", "\x00"}, {"«BOM»", "\ufeff"},
		{"«4097 letters»", strings.Repeat("x", 4097)}, {"«1025 letters»", strings.Repeat("x", 1025)},
		{"«100 deep»", strings.Repeat("(", 100) + "1" + strings.Repeat(")", 100)},
		{"«100 sums»", strings.Repeat("1+", 100) + "1"},
	} {
		file = strings.ReplaceAll(file, escape.written, escape.meant)
	}
	// A file that begins with a domain is one of Envoy's form.
	files := []rules.File{{Name: "r.yaml", Data: []byte(file), Envoy: strings.HasPrefix(file, "domain:")}}
	return outcomeOf(files)
}

func outcomeOf(files []rules.File) string {
	s, err := rules.ParseFiles(files)
	if err != nil {
		return err.Error() + "\n"
	}
	return describe(s)
}

// describeMessages writes what a client without a language is told.
func describeMessages(b *strings.Builder, r *rules.Rule) {
	if r.Messages == nil {
		return
	}
	d := stint.Decision{RetryAfter: 90 * time.Second, Violations: 2}
	for d.Outcome = stint.Limited; d.Outcome <= stint.Banned; d.Outcome++ {
		if d.Outcome == stint.Banned {
			d.BanLeft = d.RetryAfter
		}
		fmt.Fprintf(b, "    %s: %q\n", d.Outcome, r.Messages.Text(&d, false, ""))
	}
	fmt.Fprintf(b, "    by hand: %q\n", r.Messages.Text(&d, true, ""))
}

// describeFormat writes how a request that was banned after violations is answered, for each body.
func describeFormat(b *strings.Builder, of string, f *httplimit.ErrorFormat) {
	if f == nil {
		return
	}
	v := errorformat.Values{Message: "\"no\"", Outcome: "banned", Limit: "5 per 1m", RetryAfterSeconds: 90}
	h := http.Header{}
	f.SetHeaders(h, &v)
	fmt.Fprintf(b, "    %s: headers %v, code %d, message %q\n", of, h, f.CodeOf(8), f.MessageOf(&v))
	seen := map[string]bool{}
	for _, accept := range []string{"", "text/html", "text/plain", "application/xml"} {
		body := f.Choose([]string{accept})
		if v.Status = f.StatusOf(body, 429); body == nil {
			fmt.Fprintf(b, "      %d problem details\n", v.Status)
			return
		}
		if !seen[body.Type] {
			fmt.Fprintf(b, "      %d %s: %q\n", v.Status, body.ContentType(), body.Fill(&v))
		}
		seen[body.Type] = true
	}
}

func describe(s *rules.Set) string {
	var b strings.Builder
	fmt.Fprintf(&b, "enabled %t, ipv6 /%d, proxies %v\n", s.Enabled, s.IPv6Prefix, s.TrustedProxies)
	if len(s.Tiers) > 0 {
		fmt.Fprintf(&b, "tiers %s\n", strings.Join(s.Tiers, ", "))
	}
	describeFormat(&b, "refusal", s.Refusal)
	describeFormat(&b, "errors", s.Errors)
	for _, r := range s.Rules {
		fmt.Fprintf(&b, "%s: %s, on store error %s, shape %t", r.Name, r.Mode, r.OnStoreError, r.Shape)
		for _, field := range []struct{ name, text string }{{"match", r.Match}, {"key", r.Key}, {"cost", r.Cost}} {
			if field.text != "" {
				fmt.Fprintf(&b, ", %s %s", field.name, field.text)
			}
		}
		b.WriteByte('\n')
		describeCosts(&b, r)
		for _, l := range r.Limits {
			fmt.Fprintf(&b, "    %s (%s)\n", l.Terms(), l.ID())
		}
		for _, tier := range r.Tiers {
			for _, l := range tier.Limits {
				fmt.Fprintf(&b, "    tier %s: %s (%s)\n", tier.Name, l.Terms(), l.ID())
			}
		}
		describeDescriptor(&b, r.Descriptor)
		describeMessages(&b, r)
		describeFormat(&b, "refusal", r.Refusal)
		if r.Penalty != nil {
			fmt.Fprintf(&b, "    %+v\n", r.Penalty.Spec())
		}
		if len(r.OnStatus) > 0 {
			fmt.Fprintf(&b, "    on status %v, watches %t\n", r.OnStatus, len(r.Limits) == 0)
		}
	}
	for i := range s.Alerts {
		describeAlert(&b, &s.Alerts[i])
	}
	for _, f := range s.Findings {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// describeCosts writes what the rule says of costs that are known later.
func describeCosts(b *strings.Builder, r *rules.Rule) {
	if r.After != "" || r.Unsettled != rules.Keep || r.Unit != "" || r.MaxHold > 0 {
		fmt.Fprintf(b, "    cost after %q, unsettled %s, unit %q, max hold %d%%\n", r.After, r.Unsettled, r.Unit, r.MaxHold)
	}
	if r.Tokens.API != rules.NoTokens {
		fmt.Fprintf(b, "    tokens %+v\n", r.Tokens)
	}
	if paths := r.UsagePaths(); len(paths) > 0 {
		fmt.Fprintf(b, "    reads %v\n", paths)
	}
}

func describeAlert(b *strings.Builder, a *rules.Alert) {
	fmt.Fprintf(b, "alert %s: severity %s, for %s, window %s", a.Name, a.Severity, a.For, a.Window)
	if len(a.Labels) > 0 {
		fmt.Fprintf(b, ", labels %v", a.Labels)
	}
	if a.Message != "" {
		fmt.Fprintf(b, ", message %q", a.Message)
	}
	if a.Usage != nil {
		fmt.Fprintf(b, "\n    %+v\n", *a.Usage)
		return
	}
	fmt.Fprintf(b, "\n    %s\n", written(a.Condition))
}

// written is a condition with each part in parentheses.
func written(c *rules.Condition) string {
	switch c.Op {
	case "number":
		return fmt.Sprint(c.Number)
	case "measure":
		return fmt.Sprintf("%+v", c.Measure)
	}
	return "(" + written(c.Args[0]) + " " + c.Op + " " + written(c.Args[1]) + ")"
}
