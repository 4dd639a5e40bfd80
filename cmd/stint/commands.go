package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// command is one of several under a name, such as add under ban.
type command struct {
	name string
	run  func(ctx context.Context, args []string, out, errs io.Writer) error
}

// choose runs the one of a group's commands that args begin with.
func choose(ctx context.Context, group, about string, commands []command, args []string, out, errs io.Writer) error {
	f := flags(group)
	if err := parseSome(f, args, about+fmt.Sprintf("\n\"stint %s COMMAND --help\" lists a command's flags.\n", group), out); err != nil {
		return err
	}
	var names []string
	for _, c := range commands {
		if c.name == f.Arg(0) {
			return c.run(ctx, f.Args()[1:], out, errs)
		}
		names = append(names, c.name)
	}
	want := strings.Join(names, ", ")
	if f.NArg() == 0 {
		return wrong(f, `want one of %s; "stint %s --help" tells more`, want, group)
	}
	return wrong(f, `unknown command %q: want one of %s; "stint %[3]s --help" tells more`, f.Arg(0), want, group)
}

// wrong is an error in how the command of f was called.
func wrong(f *flag.FlagSet, format string, args ...any) error {
	return errUsage{fmt.Errorf(f.Name()+": "+format, args...)}
}

// parseMixed is parse where words such as a file's name stand before, between or
// after the flags: exactly as many as want names. "--" ends the flags.
func parseMixed(f *flag.FlagSet, args []string, about string, out io.Writer, want ...string) ([]string, error) {
	words, err := parseWords(f, args, about, out)
	switch {
	case err != nil:
		return nil, err
	case len(words) > len(want):
		return nil, wrong(f, "unexpected argument %q", words[len(want)])
	case len(words) < len(want):
		return nil, wrong(f, `want %s; "stint %s --help" tells more`, strings.Join(want[len(words):], " "), f.Name())
	}
	return words, nil
}

// parseWords is parseMixed with any number of words.
func parseWords(f *flag.FlagSet, args []string, about string, out io.Writer) (words []string, err error) {
	for _, a := range args {
		if !utf8.ValidString(a) { // in JSON it would become another text
			return nil, wrong(f, "argument %q is not UTF-8", a)
		}
	}
	for {
		if err := parseSome(f, args, about, out); err != nil {
			return nil, err
		}
		rest := f.Args()
		ended := len(rest) < len(args) && args[len(args)-len(rest)-1] == "--"
		if ended || len(rest) == 0 {
			return append(words, rest...), nil
		}
		words, args = append(words, rest[0]), rest[1:]
	}
}

// given tells which of f's flags were given.
func given(f *flag.FlagSet) map[string]bool {
	all := map[string]bool{}
	f.Visit(func(f *flag.Flag) { all[f.Name] = true })
	return all
}

// number is a flag that is a whole number from least, or not given.
type number struct {
	least, value int64
	given        bool
}

func (n *number) String() string { return "" }

func (n *number) Set(text string) error {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < n.least {
		return fmt.Errorf("want a whole number from %d", n.least)
	}
	n.value, n.given = v, true
	return nil
}

// errQuiet is a result that is no success, and of which nothing is left to say.
var errQuiet = errors.New("")
