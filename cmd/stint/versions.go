package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stintdev/stint/server/adminapi"
)

func versionWords(v *adminapi.Version) string {
	text := fmt.Sprintf("version %d (%s), pushed", v.Number, shown(v.Version))
	if v.Author != "" {
		text += " by " + shown(v.Author)
	}
	text += " at " + instant(v.At)
	if v.Note != "" {
		text += ": " + strconv.Quote(v.Note)
	}
	return text
}

const versionsPath = "/v1/rules/versions"

// newest is the newest version, without its text; nil where there is none.
func (a *admin) newest(ctx context.Context) (*adminapi.Version, error) {
	all, err := fetch[adminapi.Versions](ctx, a, apiRequest{method: http.MethodGet, path: versionsPath + "?limit=1"})
	if err != nil || len(all.Versions) == 0 {
		return nil, err
	}
	return &all.Versions[0], nil
}

var errNoVersions = errors.New("the fleet has no rules yet, and each instance runs those of its own file; `stint rules push FILE` makes version 1, where instances have server: {rules: fleet}")

// versionJSON is the answer with a version and its text; number 0: the newest.
func (a *admin) versionJSON(ctx context.Context, number int64) ([]byte, error) {
	if number == 0 {
		v, err := a.newest(ctx)
		switch {
		case err != nil:
			return nil, err
		case v == nil:
			return nil, errNoVersions
		}
		number = v.Number
	}
	return a.send(ctx, apiRequest{method: http.MethodGet, path: within(versionsPath, strconv.FormatInt(number, 10))})
}

func numberFlag(f *pflag.FlagSet) *number {
	n := &number{least: 1}
	f.Var(n, "number", "version `N`; without it, the newest")
	return n
}

func rulesPull() *cobra.Command {
	c := &cobra.Command{
		Use: "pull [--number N]", Short: "print a version of the fleet's rules",
		Long:                  "Prints the newest version of the fleet's rules, or version N. The first line tells\n\"stint rules push\" which version it replaces.",
		DisableFlagsInUseLine: true,
	}
	n := numberFlag(c.Flags())
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error { return a.pull(ctx, n.value) })
}

func (a *admin) pull(ctx context.Context, number int64) error {
	data, err := a.versionJSON(ctx, number)
	if err != nil {
		return err
	}
	v, err := read[adminapi.Version](data)
	switch {
	case err != nil:
		return err
	case !a.json && strings.ContainsFunc(v.Text, controlCharacter):
		return fmt.Errorf("version %d holds control characters, which no rules file may; --json shows them", v.Number)
	}
	return show(a, data, func(w io.Writer, v adminapi.Version) {
		fmt.Fprint(w, firstLine(v.Number), strings.TrimLeft(v.Text, "\n")) // push leaves a blank line for each of the section server
	})
}

// controlCharacter tells whether r is no part of text in lines.
func controlCharacter(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t'
}

func rulesHistory() *cobra.Command {
	c := &cobra.Command{
		Use: "history [--limit N]", Short: "list the versions of the fleet's rules",
		Long:                  "Lists the versions of the fleet's rules, newest first.",
		DisableFlagsInUseLine: true,
	}
	limit := number{least: 1}
	c.Flags().Var(&limit, "limit", "show the newest `N` versions (default 20)")
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error {
		q := url.Values{}
		limit.into(q, "limit")
		return exchange(ctx, a, apiRequest{method: http.MethodGet, path: withQuery(versionsPath, q)}, printVersions)
	})
}

func printVersions(w io.Writer, all adminapi.Versions) {
	if len(all.Versions) == 0 {
		fmt.Fprintln(w, "no versions: the fleet has no rules yet")
		return
	}
	t := table{heads: []string{"NUMBER", "VERSION", "AUTHOR", "AT", "NOTE"}}
	for _, v := range all.Versions {
		t.row(strconv.FormatInt(v.Number, 10), shown(v.Version), shown(v.Author), instant(v.At), plain(v.Note))
	}
	t.print(w)
}

func rulesDiff() *cobra.Command {
	c := &cobra.Command{
		Use: "diff FILE [--number N]", Short: "print what a file would change",
		Long:                  "Prints what pushing a file would change in the newest version of the fleet's rules, or in\nversion N. It exits with 1 if anything changes.",
		ValidArgsFunction:     cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		DisableFlagsInUseLine: true,
	}
	n := numberFlag(c.Flags())
	return adminCommand(c, words("FILE"), func(ctx context.Context, a *admin, words []string) error {
		if a.json {
			return errUsage{errors.New("--json: a difference has no JSON form; `stint rules pull --json` prints the text")}
		}
		return a.diff(ctx, words[0], n.value)
	})
}

// diff prints what the file would change about a version, without pull's line; number 0: the newest.
func (a *admin) diff(ctx context.Context, name string, number int64) error {
	file, err := readPulled(name)
	if err != nil {
		return fmt.Errorf("rules diff: %w", err)
	}
	data, err := a.versionJSON(ctx, number)
	if err != nil {
		return err
	}
	v, err := read[adminapi.Version](data)
	if err != nil {
		return err
	}
	text := diff.Diff(fmt.Sprintf("fleet/version-%d", v.Number), []byte(file.first+v.Text),
		shown(file.name), []byte(file.first+file.text))
	if text == nil {
		return nil
	}
	if _, err := a.out.Write(plainLines(text)); err != nil {
		return err
	}
	return errQuiet
}

// plainLines is plain for each line, and keeps tabs and a carriage return at the end.
func plainLines(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		line, end := bytes.CutSuffix(line, []byte("\n"))
		line, windows := bytes.CutSuffix(line, []byte("\r"))
		for i, part := range bytes.Split(line, []byte("\t")) {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(plain(string(part)))
		}
		if windows {
			b.WriteByte('\r')
		}
		if end {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
