package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/adminapi"
)

// firstLine is what pull writes above the text, for push to know what it replaces.
func firstLine(number int64) string {
	return fmt.Sprintf("# version %d of the fleet's rules\n", number)
}

var firstLineForm = regexp.MustCompile(`^# version ([1-9]\d{0,17}) of the fleet's rules\r?\n`)

// pulled is a rules file without the section server; pull may have written a line above it.
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

// renumber makes pull's first line name the version that the file now is, for the next push. The
// file keeps its mode and link.
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

// inFile turns lines of the text into lines of the file.
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

// withoutServer removes the section server, which is each instance's own and may hold passwords;
// blank lines keep line numbers true. Text that is no YAML in block form is left for the server
// to refuse.
func withoutServer(text string) (rest string, had bool) {
	r, root := yamlnode.Open("", []byte(text))
	if r.Err() != nil || root == nil {
		return text, false
	}
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i]
		if key.Value != "server" || key.Column != 1 {
			continue
		}
		end := len(lines)
		if i+2 < len(root.Content) {
			end = root.Content[i+2].Line - 1
		}
		if end < key.Line {
			return text, false // another key on the same line
		}
		for end > key.Line && isAside(lines[end-1]) {
			end-- // a comment before the next section is that one's
		}
		for j := key.Line - 1; j < end; j++ {
			lines[j] = lineEnd(lines[j])
		}
		return strings.Join(lines, ""), true
	}
	return text, false
}

func isAside(line string) bool {
	return strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#")
}

func lineEnd(line string) string {
	if strings.HasSuffix(line, "\n") {
		return "\n"
	}
	return ""
}

func afterFlags(f *pflag.FlagSet) (after *number, note *string) {
	after = &number{}
	f.Var(after, "after", "replace version `N`; if another is the newest, nothing changes")
	return after, f.String("note", "", "`TEXT` to keep in the history")
}

func rulesPush() *cobra.Command {
	c := &cobra.Command{
		Use: "push FILE [--after N | --force] [--note TEXT]", Short: "make a file the fleet's next version",
		Long: `Makes a file the next version of the fleet's rules. It replaces the version that the file was
pulled from, or that --after names; if another version is the newest, nothing changes.

With --force it replaces the newest version, whatever that is: for a pipeline that pushes the file
of a repository. If the newest version has the same text, nothing is pushed, and that is no error.`,
		Example: `  stint rules pull > fleet.yaml
  stint rules push fleet.yaml --note "more for exports"
  stint rules push rules.yaml --force --note "commit 4f2a91c"`,
		ValidArgsFunction:     cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		DisableFlagsInUseLine: true,
	}
	after, note := afterFlags(c.Flags())
	force := c.Flags().Bool("force", false, "replace the newest version, unless it has the same text")
	return adminCommand(c, words("FILE"), func(ctx context.Context, a *admin, words []string) error {
		switch {
		case *force && after.given:
			return errUsage{errors.New("--force replaces the newest version, and --after one that you name: want one of them")}
		case *force:
			return a.forcePush(ctx, words[0], *note)
		}
		return a.push(ctx, words[0], after, *note)
	})
}

func (a *admin) push(ctx context.Context, name string, after *number, note string) error {
	file, err := readPulled(name)
	if err != nil {
		return fmt.Errorf("rules push: %w", err)
	}
	replaces, err := file.replaces(ctx, a, after)
	if err != nil {
		return err
	}
	data, err := a.replace(ctx, replaces, file, note)
	if err != nil {
		return file.inFile(a.raced(ctx, err, replaces, func(newest int64) string {
			return fmt.Sprintf("see `stint rules diff %s`, then push with --after %d", shown(file.name), newest)
		}))
	}
	v, err := read[adminapi.Version](data)
	if err != nil {
		return err
	}
	stale := file.renumber(v.Number)
	return show(a, data, func(w io.Writer, v adminapi.Version) {
		file.printPushed(w, &v)
		switch {
		case stale != nil:
			fmt.Fprintf(w, "the first line of %s still says version %d (%s): push it next time with --after %d\n", shown(file.name), file.number, plain(stale.Error()), v.Number)
		case file.first == "":
			fmt.Fprintf(w, "to push a change of it: stint rules push %s --after %d\n", shown(file.name), v.Number)
		}
	})
}

// forcePush makes a file the next version after the newest, unless that has its text. The file, which may be
// part of a repository, keeps its first line.
func (a *admin) forcePush(ctx context.Context, name, note string) error {
	file, err := readPulled(name)
	if err != nil {
		return fmt.Errorf("rules push: %w", err)
	}
	newest := &adminapi.Version{}
	data, err := a.versionJSON(ctx, 0)
	if err == nil {
		*newest, err = read[adminapi.Version](data)
	}
	switch {
	case err != nil && !errors.Is(err, errNoVersions):
		return err
	case err == nil && newest.Text == file.text:
		return show(a, data, func(w io.Writer, v adminapi.Version) {
			fmt.Fprintf(w, "version %d already has these rules\n", v.Number)
		})
	}
	if data, err = a.replace(ctx, newest.Number, file, note); err != nil {
		return file.inFile(a.raced(ctx, err, newest.Number, func(int64) string {
			return "which was pushed meanwhile: run the command again to replace it, too"
		}))
	}
	return show(a, data, func(w io.Writer, v adminapi.Version) { file.printPushed(w, &v) })
}

// replace makes the file the next version after a version, and returns the answer.
func (a *admin) replace(ctx context.Context, after int64, file *pulled, note string) ([]byte, error) {
	return a.send(ctx, apiRequest{http.MethodPut, "/v1/rules", adminapi.PushRequest{Text: file.text, After: after, Note: note}})
}

// printPushed prints which version the file is now.
func (p *pulled) printPushed(w io.Writer, v *adminapi.Version) {
	fmt.Fprintf(w, "version %d (%s): every instance takes it within a second\n", v.Number, shown(v.Version))
	if p.hadServer {
		fmt.Fprintf(w, "the section server of %s was not pushed: it is each instance's own\n", shown(p.name))
	}
}

// replaces is the number of the version that a push replaces. Without --after or pull's line,
// nobody has looked at what would be lost.
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

// raced adds to a conflict who made the newest version, and how to go on.
func (a *admin) raced(ctx context.Context, err error, replaces int64, goOn func(newest int64) string) error {
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
		v, err := fetch[adminapi.Version](ctx, a, apiRequest{method: http.MethodGet, path: within(versionsPath, strconv.FormatInt(*r.answer.Newest, 10))})
		if err == nil {
			newest = versionWords(&v)
		}
	}
	return fmt.Errorf("nothing is changed: %s was to be replaced, but the newest is\n%s\n%s", before, newest, goOn(*r.answer.Newest))
}

func rulesRollback() *cobra.Command {
	c := &cobra.Command{
		Use: "rollback N [--after M] [--note TEXT]", Short: "make an earlier version the next one",
		Long:                  "Makes the rules of version N the fleet's next version. It replaces the newest, or the version\nthat --after names; if another version is the newest, nothing changes.",
		DisableFlagsInUseLine: true,
	}
	after, note := afterFlags(c.Flags())
	to := number{least: 1}
	check := func(c *cobra.Command, args []string) error {
		if err := words("the number of the version to go back to")(c, args); err != nil {
			return err
		}
		if err := to.Set(args[0]); err != nil {
			return fmt.Errorf("%q: want the number of a version; `stint rules history` shows them", args[0])
		}
		return nil
	}
	return adminCommand(c, check, func(ctx context.Context, a *admin, _ []string) error {
		return a.rollback(ctx, to.value, after, *note)
	})
}

func (a *admin) rollback(ctx context.Context, to int64, after *number, note string) error {
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
	data, err := a.send(ctx, apiRequest{http.MethodPost, "/v1/rules/rollback", adminapi.RollbackRequest{To: to, After: after.value, Note: note}})
	if err != nil {
		return a.raced(ctx, err, after.value, func(newest int64) string {
			return fmt.Sprintf("see `stint rules history`, then `stint rules rollback %d` with --after %d", to, newest)
		})
	}
	return show(a, data, func(w io.Writer, v adminapi.Version) {
		fmt.Fprintf(w, "version %d (%s): what version %d held replaces version %d; every instance takes it within a second\n",
			v.Number, shown(v.Version), to, after.value)
	})
}
