package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/stintdev/stint/server/adminapi"
)

// versionWords is the version with who made it, when and why.
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
	all, err := fetch[adminapi.Versions](ctx, a, question{method: http.MethodGet, path: versionsPath + "?limit=1"})
	if err != nil || len(all.Versions) == 0 {
		return nil, err
	}
	return &all.Versions[0], nil
}

var errNoVersions = errors.New("the fleet has no rules yet, and each instance runs those of its own file; `stint rules push FILE` makes version 1, where instances have server: {rules: fleet}")

// versionJSON is the answer that holds a version with its text; number 0: the
// newest.
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
	return a.send(ctx, question{method: http.MethodGet, path: within(versionsPath, strconv.FormatInt(number, 10))})
}

// numberFlag adds --number to f.
func numberFlag(f *flag.FlagSet) *number {
	n := &number{least: 1}
	f.Var(n, "number", "`N` of the version; without it, the newest")
	return n
}

func rulesPull(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("rules pull")
	a, n := adminFlags(f, errs), numberFlag(f)
	if _, err := parseMixed(f, args, rulesAbout, out); err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	data, err := a.versionJSON(ctx, n.value)
	if err != nil {
		return err
	}
	v, err := read[adminapi.Version](data)
	switch {
	case err != nil:
		return err
	case !a.json && strings.ContainsFunc(v.Text, controls):
		return fmt.Errorf("version %d holds control characters, which no rules file may; --json shows them", v.Number)
	}
	return show(a, out, data, func(w io.Writer, v adminapi.Version) {
		fmt.Fprint(w, firstLine(v.Number), v.Text)
	})
}

// controls tells whether r is nothing to send to a terminal, and nothing that text
// in lines is made of.
func controls(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t'
}

func rulesHistory(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("rules history")
	a := adminFlags(f, errs)
	limit := number{least: 1}
	f.Var(&limit, "limit", "show the newest `N` versions (default 20)")
	if _, err := parseMixed(f, args, rulesAbout, out); err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	path := versionsPath
	if limit.given {
		path += fmt.Sprintf("?limit=%d", limit.value)
	}
	return exchange(ctx, a, out, question{method: http.MethodGet, path: path}, func(w io.Writer, all adminapi.Versions) {
		if len(all.Versions) == 0 {
			fmt.Fprintln(w, "no versions: the fleet has no rules yet")
			return
		}
		t := table{heads: []string{"NUMBER", "VERSION", "AUTHOR", "AT", "NOTE"}}
		for _, v := range all.Versions {
			t.row(strconv.FormatInt(v.Number, 10), shown(v.Version), shown(v.Author), instant(v.At), plain(v.Note))
		}
		t.print(w)
	})
}
