package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/stintdev/stint/server/adminapi"
)

// firstLine is what pull writes above the text, for push to know what it replaces.
func firstLine(number int64) string {
	return fmt.Sprintf("# version %d of the fleet's rules\n", number)
}

var firstLineForm = regexp.MustCompile(`^# version ([1-9]\d{0,17}) of the fleet's rules\r?\n`)

// pulled is a rules file: what pull wrote above it, if it did, and the rest, without
// the section server.
type pulled struct {
	name, first, text string
	number            int64 // that first tells; 0: none
	hadServer         bool
}

func readPulled(name string) (*pulled, error) {
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, syscall.EISDIR):
		return nil, fmt.Errorf("%s is a directory: the fleet's rules are one file", plain(name))
	case err != nil:
		return nil, err
	case !utf8.Valid(data):
		return nil, fmt.Errorf("%s: not UTF-8", plain(name))
	}
	p := &pulled{name: name, text: string(data)}
	if m := firstLineForm.FindStringSubmatch(p.text); m != nil {
		p.first, p.text = m[0], p.text[len(m[0]):]
		p.number, _ = strconv.ParseInt(m[1], 10, 64) // it has the form
	}
	p.text, p.hadServer = withoutServer(p.text)
	return p, nil
}

// renumber makes the first line of the file, if pull wrote one, tell the version that
// the file now is, so that the next push of it replaces that one. The file keeps its
// mode and, where it is a link, its place.
func (p *pulled) renumber(number int64) error {
	if p.first == "" {
		return nil
	}
	data, err := os.ReadFile(p.name)
	if err != nil {
		return err
	}
	rest, ok := bytes.CutPrefix(data, []byte(p.first))
	if !ok {
		return errors.New("it has changed meanwhile")
	}
	return os.WriteFile(p.name, append([]byte(firstLine(number)), rest...), 0o666)
}

var lineColumn = regexp.MustCompile(`^(\d{1,9})(:\d+)$`)

// inFile turns the problems of a refusal, which are told by lines of the text, into
// ones by lines of the file.
func (p *pulled) inFile(err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	for i, problem := range r.answer.Problems {
		if m := lineColumn.FindStringSubmatch(problem.Where); m != nil {
			line, _ := strconv.Atoi(m[1]) // it has the form
			r.answer.Problems[i].Where = fmt.Sprintf("%s:%d%s", p.name, line+strings.Count(p.first, "\n"), m[2])
		}
	}
	return err
}

// afterFlags adds --after and --note to f.
func afterFlags(f *flag.FlagSet) (after *number, note *string) {
	after = &number{}
	f.Var(after, "after", "`N` of the version to replace: if another is the newest by then, nothing is changed")
	return after, f.String("note", "", "`TEXT` for the history")
}

func rulesPush(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("rules push")
	a := adminFlags(f, errs)
	after, note := afterFlags(f)
	words, err := parseMixed(f, args, rulesAbout, out, "FILE")
	if err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	file, err := readPulled(words[0])
	if err != nil {
		return fmt.Errorf("rules push: %w", err)
	}
	replaces, err := file.replaces(ctx, a, after)
	if err != nil {
		return err
	}
	data, err := a.send(ctx, question{http.MethodPut, "/v1/rules", adminapi.PushRequest{Text: file.text, After: replaces, Note: *note}})
	if err != nil {
		again := fmt.Sprintf("see `stint rules diff %s`, then push with --after", shown(file.name))
		return file.inFile(a.raced(ctx, err, replaces, again))
	}
	v, err := read[adminapi.Version](data)
	if err != nil {
		return err
	}
	stale := file.renumber(v.Number)
	return show(a, out, data, func(w io.Writer, v adminapi.Version) {
		fmt.Fprintf(w, "version %d (%s): every instance takes it within a second\n", v.Number, shown(v.Version))
		if file.hadServer {
			fmt.Fprintf(w, "the section server of %s was not pushed: it is each instance's own\n", shown(file.name))
		}
		switch {
		case stale != nil:
			fmt.Fprintf(w, "the first line of %s still says version %d (%s): push it next time with --after %d\n", shown(file.name), file.number, plain(stale.Error()), v.Number)
		case file.first == "":
			fmt.Fprintf(w, "to push a change of it: stint rules push %s --after %d\n", shown(file.name), v.Number)
		}
	})
}

// replaces is the number of the version that a push of p replaces. Where neither
// after nor the file tells it, nobody has looked at what would be lost.
func (p *pulled) replaces(ctx context.Context, a *admin, after *number) (int64, error) {
	if after.given {
		return after.value, nil
	}
	if p.number > 0 {
		return p.number, nil
	}
	v, err := a.newest(ctx)
	if err != nil || v == nil {
		return 0, err
	}
	return 0, fmt.Errorf("nothing is pushed: the fleet has rules, and %s does not tell which it is to replace. The newest is\n%s\nsee `stint rules diff %s`, then push with --after %d",
		plain(p.name), versionWords(v), shown(p.name), v.Number)
}

// raced adds to a refusal, because the newest version is not the one to replace, who
// made the newest and how to go on: again, followed by its number.
func (a *admin) raced(ctx context.Context, err error, replaces int64, again string) error {
	var r *refusal
	if !errors.As(err, &r) || r.answer.Status != http.StatusConflict || r.answer.Newest == nil {
		return err
	}
	before, newest := "no version", "no version"
	if replaces > 0 {
		before = fmt.Sprintf("version %d", replaces)
	}
	if *r.answer.Newest > 0 {
		newest = fmt.Sprintf("version %d", *r.answer.Newest)
		v, err := fetch[adminapi.Version](ctx, a, question{method: http.MethodGet, path: within(versionsPath, strconv.FormatInt(*r.answer.Newest, 10))})
		if err == nil {
			newest = versionWords(&v)
		}
	}
	return fmt.Errorf("nothing is changed: %s was to be replaced, but the newest is\n%s\n%s %d", before, newest, again, *r.answer.Newest)
}

func rulesRollback(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("rules rollback")
	a := adminFlags(f, errs)
	after, note := afterFlags(f)
	words, err := parseMixed(f, args, rulesAbout, out, "the number of the version to go back to")
	if err != nil {
		return err
	}
	to := number{least: 1}
	if err := to.Set(words[0]); err != nil {
		return wrong(f, "%q: want the number of a version; `stint rules history` shows them", words[0])
	}
	if err := a.open(f); err != nil {
		return err
	}
	if !after.given {
		v, err := a.newest(ctx)
		switch {
		case err != nil:
			return err
		case v == nil:
			return errNoVersions
		}
		after.value = v.Number
	}
	data, err := a.send(ctx, question{http.MethodPost, "/v1/rules/rollback", adminapi.RollbackRequest{To: to.value, After: after.value, Note: *note}})
	if err != nil {
		again := fmt.Sprintf("see `stint rules history`, then `stint rules rollback %d` with --after", to.value)
		return a.raced(ctx, err, after.value, again)
	}
	return show(a, out, data, func(w io.Writer, v adminapi.Version) {
		fmt.Fprintf(w, "version %d (%s): what version %d held replaces version %d; every instance takes it within a second\n",
			v.Number, shown(v.Version), to.value, after.value)
	})
}
