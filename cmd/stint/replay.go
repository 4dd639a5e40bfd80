package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/cmd/stint/internal/accesslog"
	"github.com/stintdev/stint/cmd/stint/internal/replay"
	"github.com/stintdev/stint/cmd/stint/internal/suggest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

func replayCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "replay FILE...", Short: "try rules on access logs",
		Long: `Decides the requests of access logs again, on the log's own clock, and prints what the rules
would have refused: how much, whom and when. Nothing is changed anywhere.

A FILE is a log, plain or compressed with gzip or zstd, a directory of logs, or - for standard
input. Several files are replayed as one log, in order of time. These forms are recognised: the
combined and common forms of nginx, Apache and Traefik, JSON of Caddy, Traefik, Envoy and stint
serve, the defaults of Envoy and HAProxy, AWS load balancers, and CSV with a header line. For
others, --format is the log_format or LogFormat as it stands in the server's configuration, and
--fields says where the fields of JSON lines or columns are.

A rule that reads what the log lacks, such as a body or a header, is not replayed: what it would
decide could only be guessed. It is named.

With --suggest, it also prints limits that would leave most keys untouched, whatever the rules'
limits are. Keys far apart from all others, such as crawlers, do not count, and are named.

With --html, it also writes a page that loads nothing, in English and Chinese: when each rule
refuses, and how high the peaks of its keys are beside its limits.`,
		Example: `  stint replay --rules new.yaml access.log
  stint replay --rules new.yaml --against old.yaml /var/log/nginx
  stint replay --rules new.yaml --against old.yaml --html report.html access.log
  stint replay --rules stint.yaml --suggest login --untouched 99% access.log
  stint replay --rules new.yaml --format '$remote_addr [$time_local] "$request" $status' access.log
  stint replay --rules new.yaml --fields time=$.ts,ip=$.remote,path=$.uri app.jsonl`,
		ValidArgsFunction:     cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		DisableFlagsInUseLine: true,
	}
	f := c.Flags()
	var r replayed
	f.StringVar(&r.rules, "rules", "", "try the rules in `FILE`, or in a directory of such files")
	f.StringVar(&r.against, "against", "", "compare with the rules in `FILE`")
	f.StringVar(&r.log.Format, "format", "", "the `FORM` of the lines: a name, a log_format of nginx or a LogFormat of Apache")
	f.StringVar(&r.log.Fields, "fields", "", "where `FIELDS` are in JSON lines or CSV, as in time=$.ts,ip=$.remote,path=$.uri")
	zone := f.String("zone", "UTC", "the `ZONE` of times without one, such as Europe/Berlin")
	f.DurationVar(&r.log.Disorder, "disorder", time.Minute, "how much older than the one before it a line may be")
	f.StringSliceVar(&r.suggest, "suggest", nil, "suggest limits for these `RULES`, or for all")
	f.Var(&r.untouched, "untouched", "the `SHARE` of keys that suggested limits leave untouched (default 99.9%)")
	f.StringVar(&r.suggested, "suggested", "", "write the rules with the suggested limits to `FILE`")
	f.StringVar(&r.html, "html", "", "also write the report to `FILE`, as a page for browsers")
	f.Var(&r.sampled, "sampled", "the log has this `SHARE` of the requests, such as 10%, each chosen at random")
	f.BoolVar(&r.repeats, "repeats", false, "also find what is refused if clients repeat refused requests")
	f.BoolVar(&r.json, "json", false, "print JSON")
	f.BoolVar(&r.each, "each", false, "print a line of JSON for each request, and no report")
	fileFlags(c, "rules", "against", "suggested", "html")
	c.Args = func(c *cobra.Command, words []string) error {
		if len(words) == 0 {
			return errors.New("want at least one FILE, or - for standard input")
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, words []string) error {
		if r.rules == "" {
			return errUsage{errors.New("want --rules FILE")}
		}
		if r.suggested != "" && len(r.suggest) == 0 {
			return errUsage{errors.New("--suggested wants --suggest RULE, or --suggest all")}
		}
		if r.each && (r.json || r.repeats || len(r.suggest) > 0 || r.html != "") {
			return errUsage{errors.New("--each prints no report: want it without --json, --repeats, --suggest and --html")}
		}
		if r.sampled > 0 && (r.each || len(r.suggest) > 0) {
			return errUsage{errors.New("--sampled has no numbers for single requests and peaks: want it without --each and --suggest")}
		}
		if r.sampled > 0 && r.sampled < leastSampled {
			return errUsage{errors.New("--sampled: want at least 0.1%")}
		}
		var err error
		if r.log.Zone, err = time.LoadLocation(*zone); err != nil {
			return errUsage{fmt.Errorf("--zone %q: want the name of a time zone, such as Europe/Berlin", *zone)}
		}
		r.out = c.OutOrStdout()
		r.log.Pipe = func(in io.Reader) io.Reader { return untilDone(c.Context(), in) }
		r.log.Stdin = r.log.Pipe(c.InOrStdin())
		return r.run(c.Context(), words)
	}
	return c
}

// untilDone is in, until ctx ends: a pipe that nobody writes to must not keep the program from printing what it
// knows.
func untilDone(ctx context.Context, in io.Reader) io.Reader {
	read, write := io.Pipe()
	go func() {
		_, err := io.Copy(write, in)
		write.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { write.CloseWithError(ctx.Err()) })
	return read
}

// leastSampled bounds how often a request of a sample is replayed.
const leastSampled = 0.001

// replayed is a call of stint replay.
type replayed struct {
	rules, against string
	log            accesslog.Options
	json, each     bool
	repeats        bool
	sampled        share
	suggest        []string // rules
	untouched      share
	suggested      string
	html           string
	out            io.Writer
}

func (r *replayed) run(ctx context.Context, paths []string) error {
	if err := r.canWrite(); err != nil {
		return err
	}
	log, err := accesslog.Open(paths, r.log)
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := r.prepare(log)
	if err != nil {
		return err
	}
	failed := r.replay(ctx, p, log)
	stopped := failed != nil
	if errors.Is(failed, context.Canceled) {
		failed = nil // a person has seen enough
	}
	if r.each {
		return failed
	}
	report, err := p.Report(context.WithoutCancel(ctx), replay.LogOf(log, stopped))
	if err != nil {
		return cmp.Or(failed, err)
	}
	return cmp.Or(r.print(report), failed)
}

// prepare makes what replays log.
func (r *replayed) prepare(log *accesslog.Log) (*replay.Replay, error) {
	known := replay.Known(log.Has())
	known.Share = float64(r.sampled)
	now, err := replaySide(r.rules, known)
	if err != nil {
		return nil, err
	}
	var old *replay.Side
	if r.against != "" {
		if old, err = replaySide(r.against, known); err != nil {
			return nil, err
		}
	}
	p := replay.New(log.Has(), now, old)
	if r.sampled > 0 {
		p.Sampled(float64(r.sampled))
	}
	if r.repeats {
		again, err := replaySide(r.rules, known)
		if err != nil {
			return nil, err
		}
		p.Repeat(again.Trial)
	}
	o := suggest.Options{Untouched: float64(r.untouched)}
	if err := p.Suggest(r.suggest, o); err != nil {
		return nil, err
	}
	if r.html != "" && r.sampled == 0 { // which draws the peaks of all
		p.StudyOthers(o)
	}
	return p, nil
}

// print prints a report, and then writes the files that were wished for: a long replay is not lost for their sake.
func (r *replayed) print(report *replay.Report) error {
	err := r.printReport(report)
	if r.suggested != "" {
		err = errors.Join(err, writeSuggested(r.suggested, r.rules, report.Suggestions))
	}
	if r.html != "" {
		err = errors.Join(err, writePage(r.html, report))
	}
	return err
}

func (r *replayed) printReport(report *replay.Report) error {
	if !r.json {
		return report.Write(r.out)
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(r.out, "%s\n", plainJSON(text))
	}
	return err
}

// replay decides all requests of the log. An error that wraps context.Canceled means that a person has seen
// enough.
func (r *replayed) replay(ctx context.Context, p *replay.Replay, log *accesslog.Log) error {
	shown := startProgress(log)
	defer shown.stop()
	buffer := bufio.NewWriter(r.out)
	defer buffer.Flush()
	sources := log.Sources()
	_, size := log.Progress()
	deciding := context.WithoutCancel(ctx) // so that a request is counted by all rules, or by none
	ends := len(sources) == 1 && size == 0 // when ctx does, with the lines that came: it is a pipe
	for {
		entries, err := log.Next()
		for i := range entries {
			e := &entries[i]
			if err := p.Add(deciding, e); err != nil {
				return fmt.Errorf("%s:%d: %w", sources[e.File].Path, e.Line, err)
			}
			if r.each {
				text, err := json.Marshal(p.Last(e, sources))
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(buffer, "%s\n", plainJSON(text)); err != nil {
					return err
				}
			}
		}
		shown.requests.Add(int64(len(entries)))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && !ends {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// replaySide compiles the rules of a file for requests of which only k is known.
func replaySide(file string, k *rules.Known) (*replay.Side, error) {
	settings, set, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	settings.JWT = nil // no log has tokens
	s, err := offline(settings, server.Config{Rules: set, Limiter: stint.NewLimiter(&stint.Memory{})})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	side := &replay.Side{Name: file, ClientHeader: settings.ClientHeader}
	side.Trial, side.Lacks = server.NewTrial(s, k)
	side.Trial.MaxDelay = settings.MaxDelay
	return side, nil
}
