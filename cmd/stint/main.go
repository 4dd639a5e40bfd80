// Command stint limits rates: a gateway, a check API, a simulator, and the control of
// those that run.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // for limits of the calendar, where the machine has no database of time zones
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server"
)

// Exit codes: 0 all went well, 1 it did not, 2 it was called wrongly.
func main() {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go obey(signals, stop)
	os.Exit(run(ctx, arguments(os.Args), os.Stdin, os.Stdout, os.Stderr))
}

// arguments returns the arguments of a process. Under the name of envoyproxy/ratelimit's program,
// which the images of that run by its path, it is "stint envoy".
func arguments(args []string) []string {
	if filepath.Base(args[0]) == "ratelimit" {
		return append([]string{"envoy"}, args[1:]...)
	}
	return args[1:]
}

// obey stops the program at the first signal and ends it by the second, also at the same moment,
// or if signals were ignored at the start.
func obey(signals <-chan os.Signal, stop func()) {
	<-signals
	stop()
	second := <-signals
	signal.Reset(second)
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Signal(second)
	}
	time.Sleep(time.Second) // it may reach another thread first, and late on a busy machine
	os.Exit(1)              // the signal is ignored
}

// logPatience is how long the end of the program waits for the reader of its log.
const logPatience = time.Second

// errUsage is an error of a call, as is every error before a command runs.
type errUsage struct{ error }

// errQuiet is a result that is no success, and of which nothing is left to say.
var errQuiet = errors.New("")

func run(ctx context.Context, args []string, in io.Reader, out, to io.Writer) int {
	errs := server.NewLogWriter(to)
	defer errs.Close(logPatience)
	root := newProgram(in, out, errs)
	root.SetArgs(args)
	running := false
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if i := slices.IndexFunc(args, func(a string) bool { return !utf8.ValidString(a) }); i >= 0 && c.Flags().Lookup("admin") != nil {
			return fmt.Errorf("argument %q is not UTF-8", args[i]) // in JSON it would become another text
		}
		running = true
		return nil
	}
	var unknown error // --help of a command that there is not
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if words := c.Flags().Args(); c.HasSubCommands() && len(words) > 0 {
			unknown = c.Args(c, words)
			return
		}
		help(c, args)
	})
	called, err := root.ExecuteContextC(ctx)
	err = cmp.Or(err, unknown)
	var usage errUsage
	switch name := strings.TrimPrefix(called.CommandPath(), "stint"); {
	case err == nil:
		return 0
	case errors.Is(err, errQuiet):
		return 1
	case !running || errors.As(err, &usage):
		if name != "" {
			name = strings.TrimPrefix(name, " ") + ": "
		}
		fmt.Fprintf(errs, "stint: %s%v\n", name, err)
		return 2
	}
	fmt.Fprintf(errs, "stint: %v\n", err)
	return 1
}

func init() { cobra.EnableCommandSorting = false } // help lists commands as they are declared

// newProgram is the tree of commands. They log to errs.
func newProgram(in io.Reader, out io.Writer, errs *server.LogWriter) *cobra.Command {
	root := &cobra.Command{
		Use:           "stint",
		Long:          "Stint limits rates exactly, in memory or in a Redis that a fleet shares.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run", []*cobra.Command{initCommand(), serveCommand(errs), envoyCommand(errs), simulateCommand(), replayCommand()}},
		{"Rules", []*cobra.Command{rulesCommand(), schemaCommand(), generateCommand()}},
		{"Live control", []*cobra.Command{switchCommand(), overrideCommand(), safelistCommand(), blocklistCommand(), banCommand(), keyCommand(), alertCommand()}},
		{"Look", []*cobra.Command{statusCommand(), healthcheckCommand(), topCommand(), watchCommand(), offendersCommand(), auditCommand(), explainCommand(), versionCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	addCobrasOwn(root, "Look")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetUsageFunc(func(c *cobra.Command) error {
		_, err := io.WriteString(c.OutOrStderr(), usage(c))
		return err
	})
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "%s\n\n%s", strings.TrimRightFunc(c.Long, unicode.IsSpace), usage(c))
	})
	root.SetFlagErrorFunc(flagError)
	return withVersion(group(root))
}

func addCobrasOwn(root *cobra.Command, groupID string) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Short, c.GroupID = "help for a command", groupID
		case "completion":
			c.Short, c.GroupID = "print a shell completion script", groupID
			c.Long = "Prints a script that completes commands, flags and file names in a shell. The help of each\nof its commands says where to keep the script."
			for _, shell := range group(c).Commands() {
				shell.Short = "a script for " + shell.Name()
			}
		}
	}
}

func group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.AddCommand(commands...)
	c.Args = func(c *cobra.Command, words []string) error {
		var names []string
		for _, sub := range c.Commands() {
			names = append(names, sub.Name())
		}
		hint := fmt.Sprintf("want one of %s; see %q", strings.Join(names, ", "), c.CommandPath()+" --help")
		switch {
		case len(words) == 0 && !c.HasParent():
			c.SetOut(c.ErrOrStderr())
			return cmp.Or(c.Help(), errors.New("no command"))
		case len(words) == 0:
			return errors.New(hint)
		}
		if near := spelling.Nearest(words[0], names); near != "" {
			return fmt.Errorf("unknown command %q: did you mean %s?", words[0], near)
		}
		return fmt.Errorf("unknown command %q: %s", words[0], hint)
	}
	c.RunE = func(*cobra.Command, []string) error { return nil } // Args lets none come here
	c.DisableFlagsInUseLine = true
	return c
}

func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		name, _, _ := strings.Cut(cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName()), "=") // -json, too
		if near := spelling.Nearest(name, names); near != "" {
			return fmt.Errorf("%w: did you mean --%s?", err, near)
		}
	}
	return fmt.Errorf("%w; %q lists the flags", err, c.CommandPath()+" --help")
}

// unexpected is the error of a word that a command does not take.
func unexpected(c *cobra.Command, word string) error {
	return fmt.Errorf("unexpected argument %q; see %q", word, c.CommandPath()+" --help")
}

// words is an Args that wants exactly as many words as it has names of them.
func words(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, words []string) error {
		switch {
		case len(words) > len(names):
			return unexpected(c, words[len(names)])
		case len(words) < len(names):
			return fmt.Errorf("want %s; see %q", strings.Join(names[len(words):], " "), c.CommandPath()+" --help")
		}
		return nil
	}
}

// number is a flag that is a whole number from least, or not given.
type number struct {
	least, value int64
	given        bool
}

func (n *number) String() string { return "" }
func (n *number) Type() string   { return "number" }

func (n *number) Set(text string) error {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < n.least {
		return fmt.Errorf("want a whole number from %d", n.least)
	}
	n.value, n.given = v, true
	return nil
}

// into sets a parameter of a query, if the flag was given.
func (n *number) into(q url.Values, name string) {
	if n.given {
		q.Set(name, strconv.FormatInt(n.value, 10))
	}
}
