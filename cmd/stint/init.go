package main

import (
	"bufio"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server/config"
)

// firstFiles has a file NAME.yaml for each use. It is what init writes without flags.
//
//go:embed init/*.yaml
var firstFiles embed.FS

// The upstream and the store that the files have.
const (
	firstUpstream = "http://localhost:9000"
	firstStore    = "memory"
)

// use is what a first file is for.
type use struct {
	name, sentence string
	passedOnBy     string // what passes requests on to the application; "": the gateway, by a route in the file
	try            string // a command that shows the file at work
}

// isEnvoys says that the file is one of descriptors, of Envoy's own form: it has no settings.
func (u *use) isEnvoys() bool { return u.name == "envoy" }

var uses = []use{
	{name: "api-keys", sentence: "an API whose callers have keys and plans",
		try: `curl -i http://localhost:8080/ -H "X-Api-Key: demo-pro-key"`},
	{name: "login", sentence: "a login: wrong passwords ban an address, and attempts per account are limited",
		try: `curl -i http://localhost:8080/login -H "Content-Type: application/json" -d '{"email":"ann@example.com","password":"wrong"}'`},
	{name: "llm", sentence: "a language model API: tokens, requests, and requests at once for each key",
		try: `curl -i http://localhost:8080/v1/chat/completions -H "Authorization: Bearer key-1" -H "Content-Type: application/json" -d '{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}'`},
	{name: "webhooks", sentence: "webhooks that you receive: bursts wait in a queue",
		try: `curl -i http://localhost:8080/webhooks/github -H "Content-Type: application/json" -d '{}'`},
	{name: "crawlers", sentence: "a site that crawlers visit: search engines get more than others",
		try: `curl -i http://localhost:8080/ -A examplebot`},
	{name: "envoy", sentence: "Envoy's rate limit service, with a file of descriptors", passedOnBy: "Envoy",
		try: "stint explain --domain shop --descriptor route=login,remote_address=192.0.2.1"},
	{name: "nginx", sentence: "an nginx that asks about each request first", passedOnBy: "nginx",
		try: `curl -i http://localhost:8082/v1/authorize -H "X-Original-Method: POST" -H "X-Original-URI: /login" -H "X-Forwarded-For: 192.0.2.1"`},
}

func initCommand() *cobra.Command {
	var names []cobra.Completion
	var list strings.Builder
	for _, u := range uses {
		names = append(names, cobra.CompletionWithDesc(u.name, u.sentence))
		fmt.Fprintf(&list, "  %-10s %s\n", u.name, u.sentence)
	}
	c := &cobra.Command{
		Use: "init [USE] [--file FILE] [--upstream URL] [--store URL]", Short: "write a first configuration file",
		Long: `Writes a first file with comments for one of these uses, and shows how to run it:

` + list.String() + `
Without USE, it asks on a terminal. It never overwrites a file.`,
		Example:               "  stint init api-keys --upstream http://localhost:3000\n  stint init login --file - > login.yaml",
		ValidArgs:             names,
		DisableFlagsInUseLine: true,
	}
	f := c.Flags()
	f.SortFlags = false
	var w wanted
	f.StringVar(&w.file, "file", "", "write `FILE`; - is standard output (default stint.yaml; for envoy, envoy/descriptors.yaml)")
	f.StringVar(&w.upstream, "upstream", "", "pass requests on to `URL` (default "+firstUpstream+")")
	f.StringVar(&w.store, "store", "", "where counts are kept: memory, or the `URL` of a Redis (default "+firstStore+")")
	fileFlags(c, "file")
	c.Args = func(c *cobra.Command, words []string) error {
		if len(words) > 1 {
			return unexpected(c, words[1])
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, words []string) error {
		return w.run(c.Context(), words, c.InOrStdin(), c.OutOrStdout())
	}
	return c
}

// wanted is what the file of a use should have. Empty parts are asked for, or have their defaults.
type wanted struct {
	use                   *use
	file, upstream, store string
}

func (w *wanted) run(ctx context.Context, words []string, in io.Reader, out io.Writer) (err error) {
	_, _, isTerminal := terminal(in, out)
	switch {
	case len(words) == 1:
		w.use, err = useNamed(words[0])
	case !isTerminal:
		err = errors.New(`want "stint init USE", because there is no terminal to ask at; USE is ` + oneOfUses())
	}
	if err = cmp.Or(err, w.check()); err != nil {
		return errUsage{err}
	}
	if w.use == nil {
		if err := w.ask(ctx, in, out); err != nil {
			return err
		}
	}
	return w.write(out)
}

// useNamed is the use of a name, or of its number in the list.
func useNamed(text string) (*use, error) {
	var names []string
	for i := range uses {
		if text == uses[i].name || text == strconv.Itoa(i+1) {
			return &uses[i], nil
		}
		names = append(names, uses[i].name)
	}
	if near := spelling.Nearest(text, names); near != "" {
		return nil, fmt.Errorf("use %.60q: did you mean %s?", text, near)
	}
	return nil, fmt.Errorf("use %.60q: want %s", text, oneOfUses())
}

func oneOfUses() string {
	var names []string
	for _, u := range uses {
		names = append(names, u.name)
	}
	return "one of " + strings.Join(names, ", ")
}

// check checks what flags say. The use may be missing yet.
func (w *wanted) check() error {
	if w.upstream != "" {
		if w.use != nil && w.use.passedOnBy != "" {
			return fmt.Errorf("--upstream: %s passes requests on itself, and its own configuration says where to", w.use.passedOnBy)
		}
		if err := checkUpstream(w.upstream); err != nil {
			return fmt.Errorf("--upstream: %w", err)
		}
	}
	if w.store == "" {
		return nil
	}
	if w.use != nil && w.use.isEnvoys() && w.file == "-" {
		return errors.New("--store: a file of descriptors has none; give it to stint serve")
	}
	if err := checkStore(w.store); err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	return nil
}

func checkUpstream(text string) error {
	_, err := config.ParseUpstream(text)
	return err
}

func checkStore(text string) error {
	if text == firstStore {
		return nil
	}
	return redislimit.CheckAddress(text)
}

// ask asks a person for the use, and for what flags have not said.
func (w *wanted) ask(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	fmt.Fprint(out, "What do you want to limit?\n\n")
	for i, u := range uses {
		fmt.Fprintf(out, "  %d  %-10s %s\n", i+1, u.name, u.sentence)
	}
	fmt.Fprintln(out)
	q := newQuestions(ctx, in, out)
	if _, err = q.ask("Number or name", "", func(text string) (err error) { w.use, err = useNamed(text); return err }); err != nil {
		return err
	}
	if err := w.check(); err != nil {
		return errUsage{err}
	}
	if w.upstream == "" && w.use.passedOnBy == "" {
		if w.upstream, err = q.ask("Pass requests on to the URL", firstUpstream, checkUpstream); err != nil {
			return err
		}
	}
	if w.store == "" {
		w.store, err = q.ask("Keep counts in memory, or in the Redis at the URL", firstStore, checkStore)
	}
	return err
}

// questions asks a person until an answer is valid or the context ends.
type questions struct {
	ctx   context.Context
	lines chan string // closed at the end of what the person says
	out   io.Writer
}

func newQuestions(ctx context.Context, in io.Reader, out io.Writer) *questions {
	q := &questions{ctx, make(chan string), out}
	go func() {
		defer close(q.lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			select {
			case q.lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return q
}

// ask returns the first answer that check accepts. An empty answer stands for the standard.
func (q *questions) ask(question, standard string, check func(string) error) (string, error) {
	if standard != "" {
		question += " [" + standard + "]"
	}
	for {
		fmt.Fprint(q.out, question+": ")
		select {
		case line, ok := <-q.lines:
			if !ok {
				fmt.Fprintln(q.out)
				return "", errors.New("no answer; nothing is written")
			}
			answer := cmp.Or(strings.TrimSpace(line), standard)
			err := check(answer)
			if err == nil {
				return answer, nil
			}
			fmt.Fprintln(q.out, err)
		case <-q.ctx.Done():
			fmt.Fprintln(q.out)
			return "", errors.New("stopped; nothing is written")
		}
	}
}

// hasStore says that counts are kept elsewhere than the files say.
func (w *wanted) hasStore() bool { return w.store != "" && w.store != firstStore }

// text is the file.
func (w *wanted) text() (string, error) {
	text, err := firstFiles.ReadFile("init/" + w.use.name + ".yaml")
	if err != nil {
		return "", err
	}
	swaps := []string{yamlText(firstUpstream), yamlText(cmp.Or(w.upstream, firstUpstream))}
	if w.hasStore() {
		swaps = append(swaps, "store: "+firstStore+"\n", "store: "+yamlText(w.store)+"\n")
	}
	return strings.NewReplacer(swaps...).Replace(string(text)), nil
}

// write writes the file, and prints what to do next.
func (w *wanted) write(out io.Writer) error {
	text, err := w.text()
	if err != nil {
		return err
	}
	if w.file == "-" {
		_, err := fmt.Fprint(out, text)
		return err
	}
	standard := "stint.yaml"
	if w.use.isEnvoys() {
		standard = "envoy/descriptors.yaml" // all files of the directory are descriptors
	}
	w.file = cmp.Or(w.file, standard)
	if err := createFile(w.file, text); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s is written. Look at it, and run:\n\n  %s\n\nThen try:\n\n  %s\n", w.file, w.command(), w.use.try)
	return err
}

// command is the command that runs the file.
func (w *wanted) command() string {
	if !w.use.isEnvoys() {
		return "stint serve --config " + shellText(w.file)
	}
	command := "stint serve --envoy " + shellText(filepath.Dir(w.file))
	if w.hasStore() {
		command += " --store " + shellText(w.store)
	}
	return command
}

// createFile writes a new file, which only its owner may read: the address of a store may have a
// password. It makes the directory of the file, too.
func createFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists, and stint init overwrites nothing: give --file another name, or - to print", path)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path) // else the next call would find half a file
	}
	return err
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shellText is a word as a shell reads it.
func shellText(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
