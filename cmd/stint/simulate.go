package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

func simulateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "simulate", Short: "replay recorded events through rules",
		Long: `Replays events through rules, on the events' own clock, and prints a line of JSON for each.

An event is a line of JSON: t_us, its instant in microseconds since 1970, and any of request,
client, operation, attrs, claims and cost, as in a check request:

  {"t_us":1770000000000000,"client":"192.0.2.1","request":{"method":"GET","path":"/"}}

An event may also hold its cost under a name. Later events settle or renew that hold, or charge
a cost without one:

  {"t_us":1770000000000000,"hold":"h1","cost":500,"attrs":{"user":"ann"}}
  {"t_us":1770000001000000,"renew":"h1"}
  {"t_us":1770000002000000,"settle":"h1","cost":812}
  {"t_us":1770000003000000,"charge":true,"cost":90,"attrs":{"user":"ann"}}

Their outcomes are settled, unknown (the hold has ended), renewed and charged, and their
decisions have remaining, reset_after_us and charged. No hold is renewed automatically.

A result has outcome, rule, decisions and ban_left_us; durations are in microseconds, and -1
means never. A request that a server would answer with 400, such as a path with a #, has the
outcome malformed, and detail says why. A path that servers read in different ways, such as
/x/..;/login, is evaluated here in its normal form; a server refuses it unless its setting
"ambiguous" allows it.`,
		Example: "  stint simulate --rules stint.yaml --events events.jsonl",
		Args:    words(),
	}
	f := c.Flags()
	file := f.String("rules", "", "read rules from `FILE`, or from a directory of such files")
	events := f.String("events", "-", "read events from `FILE`; - is standard input")
	address := f.String("store", "memory", "where counts are kept: memory, or the `URL` of a Redis, in a namespace of its own that is removed afterwards")
	fileFlags(c, "rules", "events")
	var descriptors envoyFiles
	descriptors.addFlags(f)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *file == "" && descriptors.directory == "" {
			return errUsage{errors.New("want --rules FILE, or --envoy DIR")}
		}
		in := c.InOrStdin()
		if *events != "-" {
			opened, err := os.Open(*events)
			if err != nil {
				return err
			}
			defer opened.Close()
			in = opened
		}
		return descriptors.simulate(c.Context(), *file, *address, in, c.OutOrStdout())
	}
	return c
}

const simulatedKeys = 20_000_000

func (e *envoyFiles) simulate(ctx context.Context, file, address string, in io.Reader, out io.Writer) (err error) {
	settings, set, err := e.config(file)
	if err != nil {
		return err
	}
	store, done, err := simulatedStore(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	// What was recorded may be anything, and one line must not end the simulation.
	settings.AllowAmbiguous = rules.AnyAmbiguity
	settings.JWT = nil // tokens would be as valid as they are now
	s, err := offline(settings, server.Config{Rules: set, Limiter: stint.NewLimiter(store)})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Simulate(ctx, in, out)
}

func simulatedStore(ctx context.Context, address string) (stint.Store, func() error, error) {
	if address == "memory" {
		return &stint.Memory{MaxKeys: simulatedKeys}, func() error { return nil }, nil
	}
	s, err := redislimit.Connect(ctx, address, redislimit.Options{Namespace: "stint-simulate-" + rand.Text()})
	if err != nil {
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	return s, func() error {
		defer s.Close()
		return s.Clear(context.WithoutCancel(ctx))
	}, nil
}
