// Command stint limits rates: a gateway, a check API, a simulator, and the control of
// those that run.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/stintdev/stint/server"
)

const usage = `Stint limits rates: exactly, in memory or in a Redis that a fleet shares.

Usage:

  Run
    stint serve       limit HTTP in front of upstreams, and answer check requests
    stint simulate    replay recorded events through rules

  Rules
    stint rules       check files; push, pull, diff, history, rollback of a fleet's

  Live control
    stint switch      the kill switch, and the modes of rules
    stint override    other limits for a key or a tier
    stint safelist    whom not to limit
    stint blocklist   whom to refuse
    stint ban         ban keys and networks, and lift bans
    stint key         show a key, make it unused, give units back

  Look
    stint status      how an instance is, and what looks wrong
    stint explain     what would be decided about a request, and why
    stint version     print the version

"stint COMMAND --help" tells more.
`

// Exit codes: 0 all went well, 1 it did not, 2 it was called wrongly.
func main() {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go obey(signals, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// obey stops the program at the first signal and ends it by the second, also if that
// comes at the same moment, or if the program was started with the signal ignored.
func obey(signals <-chan os.Signal, stop func()) {
	<-signals
	stop()
	second := <-signals
	signal.Reset(second)
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Signal(second)
	}
	time.Sleep(100 * time.Millisecond) // it may reach another thread first
	os.Exit(1)                         // the signal is ignored
}

// errUsage is an error in how the program was called.
type errUsage struct{ error }

// logPatience is for how long an end waits for whoever reads the log.
const logPatience = time.Second

func run(ctx context.Context, args []string, in io.Reader, out, to io.Writer) int {
	errs := server.NewLogWriter(to)
	defer errs.Close(logPatience)
	err := dispatch(ctx, args, in, out, errs)
	var wrong errUsage
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errQuiet):
		return 1
	case errors.As(err, &wrong):
		fmt.Fprintf(errs, "stint: %v\n", err)
		return 2
	}
	fmt.Fprintf(errs, "stint: %v\n", err)
	return 1
}

func dispatch(ctx context.Context, args []string, in io.Reader, out io.Writer, errs *server.LogWriter) error {
	if len(args) == 0 {
		fmt.Fprint(errs, usage)
		return errUsage{errors.New("no command")}
	}
	name, args := args[0], args[1:]
	switch name {
	case "serve":
		return serve(ctx, args, out, errs)
	case "simulate":
		return simulate(ctx, args, in, out)
	case "rules":
		return choose(ctx, name, rulesAbout, rulesCommands, args, out, errs)
	case "version", "--version", "-version":
		fmt.Fprintf(out, "stint %s, %s\n", version(), runtime.Version())
		return nil
	case "help", "--help", "-help", "-h":
		fmt.Fprint(out, usage)
		return nil
	}
	return control(ctx, name, args, out, errs)
}

// control runs the commands that speak to the admin API and to nothing else.
func control(ctx context.Context, name string, args []string, out, errs io.Writer) error {
	switch name {
	case "switch":
		return switchCommand(ctx, args, out, errs)
	case "override":
		return choose(ctx, name, overrideAbout, overrideCommands, args, out, errs)
	case "safelist":
		return listCommand(ctx, name, "Lists whom never to limit", args, out, errs)
	case "blocklist":
		return listCommand(ctx, name, "Lists whom to refuse", args, out, errs)
	case "ban":
		return choose(ctx, name, banAbout, banCommands, args, out, errs)
	case "key":
		return choose(ctx, name, keyAbout, keyCommands, args, out, errs)
	case "status":
		return status(ctx, args, out, errs)
	case "explain":
		return explain(ctx, args, out, errs)
	}
	return errUsage{fmt.Errorf(`unknown command %q; "stint help" lists them`, name)}
}

// version is the module's version, and the commit that it was built from with that
// commit's time, as far as the build recorded them.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	built := map[string]string{}
	for _, s := range info.Settings {
		built[s.Key] = s.Value
	}
	v, commit := cmp.Or(info.Main.Version, "(devel)"), built["vcs.revision"]
	if commit == "" {
		return v
	}
	v += ", commit " + commit[:min(12, len(commit))]
	if at := built["vcs.time"]; at != "" {
		v += " of " + at
	}
	if built["vcs.modified"] == "true" {
		v += " and uncommitted changes"
	}
	return v
}

// flags are a command's.
func flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	return f
}

// parseSome is parse where something may follow the flags.
func parseSome(f *flag.FlagSet, args []string, about string, out io.Writer) error {
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		help(f, about, out)
		return err
	case err != nil:
		return errUsage{fmt.Errorf(`%s: %w; "stint %s --help" lists the flags`, f.Name(), err, f.Name())}
	}
	return nil
}

// parse reads flags. Nothing may follow them. --help prints help, which begins with
// about, to out.
func parse(f *flag.FlagSet, args []string, about string, out io.Writer) error {
	if err := parseSome(f, args, about, out); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return errUsage{fmt.Errorf("%s: unexpected argument %q", f.Name(), f.Arg(0))}
	}
	return nil
}

func help(f *flag.FlagSet, about string, out io.Writer) {
	fmt.Fprint(out, about)
	heading := "\nFlags:\n\n"
	f.VisitAll(func(f *flag.Flag) {
		fmt.Fprint(out, heading)
		heading = ""
		kind, text := flag.UnquoteUsage(f)
		text = strings.ReplaceAll(text, "\n", "\n        ")
		fmt.Fprintf(out, "    --%s\n        %s", strings.TrimSpace(f.Name+" "+kind), text)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
			fmt.Fprintf(out, " (default %s)", f.DefValue)
		}
		fmt.Fprintln(out)
	})
}
