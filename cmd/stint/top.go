package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/stintdev/stint/server/adminapi"
)

func topCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "top", Short: "show the busiest rules, instances and offenders",
		Long: `Shows, each second, the fleet's decisions and refusals per second, the time to decide, the
busiest rules, the instances and the worst offenders. Without a terminal, or with --once or
--json, it prints this once.

Keys: q quits. d, r and n sort the rules by decisions, refusals or name. o and b choose which
offenders are listed, and by what count. Space pauses.`,
	}
	var once bool
	c.Flags().BoolVar(&once, "once", false, "print once, also on a terminal")
	in := c.InOrStdin
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error {
		keys, out, ok := terminal(in(), a.out)
		if once || a.json || !ok {
			return a.topOnce(ctx)
		}
		return a.topOn(ctx, keys, out)
	})
}

// terminal returns both ends of the terminal that a person sits at, if in and out are one.
func terminal(in io.Reader, out io.Writer) (keys, screen *os.File, ok bool) {
	keys, isKeys := in.(*os.File)
	screen, isScreen := out.(*os.File)
	ok = isKeys && isScreen && term.IsTerminal(int(keys.Fd())) && term.IsTerminal(int(screen.Fd()))
	return keys, screen, ok
}

// topOnce prints the next event and ends.
func (a *admin) topOnce(ctx context.Context) error {
	err := a.live(ctx, "/v1/live", func(now *adminapi.Live, data []byte) error {
		if a.json {
			_, err := fmt.Fprintf(a.out, "%s\n", plainJSON(data))
			return errors.Join(err, errEnough)
		}
		v := newTopView(a.base.Host)
		v.now = now
		if err := a.lookAround(ctx, v.wants()).into(v); err != nil {
			return err
		}
		for _, line := range v.lines(0, 0) {
			if _, err := fmt.Fprintln(a.out, line); err != nil {
				return err
			}
		}
		return errEnough
	}, func(error) {})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// lookEvery is how often top reads what is not in the stream.
const lookEvery = 5 * time.Second

// around is what top shows beside the stream.
type around struct {
	series    *adminapi.Series
	instances []adminapi.Instance
	offenders *adminapi.Offenders // nil: the server does not count them
	asked     topWants
	err       error
}

// lookAround reads what top shows beside the stream.
func (a *admin) lookAround(ctx context.Context, want topWants) (r around) {
	r.asked = want
	series, err := fetch[adminapi.Series](ctx, a, apiRequest{method: http.MethodGet, path: "/v1/series"})
	if r.series, r.err = &series, err; err != nil {
		return r
	}
	instances, err := fetch[adminapi.Instances](ctx, a, apiRequest{method: http.MethodGet, path: "/v1/instances"})
	if r.instances, r.err = instances.Instances, err; err != nil {
		return r
	}
	query := url.Values{"of": {want.of}, "by": {want.by}, "limit": {"20"}}
	offenders, err := fetch[adminapi.Offenders](ctx, a, apiRequest{method: http.MethodGet, path: withQuery("/v1/offenders", query)})
	var refused *refusal
	if errors.As(err, &refused) && refused.answer.Status == http.StatusNotFound {
		return r
	}
	r.offenders, r.err = &offenders, err
	return r
}

// into puts what was read into v, unless v wants something else by now.
func (r around) into(v *topView) error {
	if r.err != nil {
		return r.err
	}
	v.series, v.instances = r.series, r.instances
	if r.asked == v.wants() {
		v.offenders = r.offenders
	}
	return nil
}

// topOn draws on a terminal until q is pressed or ctx is done.
func (a *admin) topOn(ctx context.Context, keys, out *os.File) error {
	before, err := term.MakeRaw(int(keys.Fd()))
	if err != nil {
		return err
	}
	// The alternate screen, without a cursor and without wrapping.
	fmt.Fprint(out, "\x1b[?1049h\x1b[?25l\x1b[?7l")
	defer func() {
		fmt.Fprint(out, "\x1b[?7h\x1b[?25h\x1b[?1049l")
		_ = term.Restore(int(keys.Fd()), before)
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pressed, events, looked := make(chan byte), make(chan *adminapi.Live), make(chan around)
	failed, lost := make(chan error, 1), make(chan error)
	go readKeys(ctx, keys, pressed)
	go func() {
		failed <- a.live(ctx, "/v1/live", func(now *adminapi.Live, _ []byte) error {
			return send(ctx, events, now)
		}, func(err error) { _ = send(ctx, lost, err) })
	}()
	v := newTopView(a.base.Host)
	look := func() {
		want := v.wants()
		go func() { _ = send(ctx, looked, a.lookAround(ctx, want)) }()
	}
	look()
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		v.drawOn(out)
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case key := <-pressed:
			want := v.wants()
			if v.press(key) {
				return nil
			}
			if v.wants() != want {
				look()
			}
		case now := <-events:
			if v.trouble = ""; !v.paused {
				v.now = now
			}
		case err := <-lost:
			v.trouble = err.Error()
		case r := <-looked:
			if err := r.into(v); err != nil {
				v.trouble = err.Error()
			}
		case <-again.C:
			if !v.paused {
				look()
			}
		}
	}
}

// send sends v to a channel, unless ctx ends first.
func send[T any](ctx context.Context, to chan<- T, v T) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func readKeys(ctx context.Context, from *os.File, to chan<- byte) {
	var one [1]byte
	for {
		if n, err := from.Read(one[:]); n == 0 || err != nil || send(ctx, to, one[0]) != nil {
			return
		}
	}
}

// drawOn draws v on the whole screen.
func (v *topView) drawOn(out *os.File) {
	width, height, err := term.GetSize(int(out.Fd()))
	if err != nil {
		width, height = 80, 24
	}
	frame := "\x1b[H"
	for i, line := range v.lines(width, height) {
		if i > 0 {
			frame += "\r\n"
		}
		frame += line + "\x1b[K"
	}
	fmt.Fprint(out, frame+"\x1b[J")
}
