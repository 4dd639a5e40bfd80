package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

func (c *choice) serve(ctx context.Context, environ []string, out io.Writer, errs *server.LogWriter) error {
	settings, set, err := c.load(environ)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // else it would end with whoever reads its log
	log, access := errs.Loggers(settings.Log)
	if _, unknown := config.Environment(environ); len(unknown) > 0 {
		log.Warn("these environment variables name no setting", "variables", strings.Join(unknown, ", "))
	}
	footprint := settings.FitMemory()
	footprint.Log(log)
	limitMemory(&footprint, log)
	of := server.Config{
		Settings: settings, Rules: set, Log: log, AccessLog: access, LogDropped: errs.Dropped, Program: "stint " + version(),
	}
	done, err := of.OpenStore(nil)
	if err != nil {
		return err
	}
	defer done()
	settings = of.Settings
	logFindings(log, slices.Concat(settings.Findings(set), set.Findings), nil)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	watchEviction(watching, of.Limiter.Store, log)
	gateway := c.demo || len(settings.Routes) > 0
	if settings.CheckListen == config.Off && !gateway && settings.Envoy == nil {
		return errors.New("nothing to serve: check_listen is off, and there are no routes")
	}
	listeners, err := listen(&settings, gateway, log)
	if err != nil {
		return err
	}
	if !gateway {
		log.Info("no gateway, because there are no routes: set --upstream, or routes in the file")
	}
	if c.demo {
		stop, err := startDemo(&settings, listeners, out)
		if err != nil {
			listeners.Close()
			return err
		}
		defer stop()
	}
	of.Settings = settings
	if e := settings.Envoy; e != nil {
		of.Calls.Each = e.Each
	}
	s := server.New(of)
	log.Info("rules", "version", set.Version, "count", len(set.Rules))
	var beside []func(context.Context) error
	var loaded func([]rules.File, error)
	if settings.Envoy != nil {
		source := &descriptors{log: log}
		source.note(c.source.Files, nil)
		e, err := newEnvoy(s, besideGateway(settings.Envoy), &settings, source, log)
		if err == nil {
			err = elsewhere(e.Listen(), "--envoy-listen ADDRESS, or the addresses of the section envoy in the file")
		}
		if err != nil {
			listeners.Close()
			s.Close()
			return err
		}
		beside, loaded = append(beside, e.Run), source.note
	}
	if c.config != "" || c.envoy != nil {
		go watch(watching, rules.Watcher{Path: c.config, Envoy: c.envoy, Now: onHangup(watching)}, c.source, s, log, loaded)
		go reloadFiles(watching, onHangup(watching), s)
	}
	return s.Run(ctx, listeners, beside...)
}

// listen opens all listeners of the settings, or none.
func listen(s *config.Settings, gateway bool, log *slog.Logger) (server.Listeners, error) {
	var all server.Listeners
	for _, d := range []struct {
		name, address string
		wanted        bool
		to            *net.Listener
		flag          string
	}{
		{"check API", s.CheckListen, s.CheckListen != config.Off, &all.Check, "check-listen"},
		{"probes", s.ProbeListen, s.ProbeListen != config.Off, &all.Probes, "probe-listen"},
		{"admin API", s.Admin.Listen, s.Admin.Listen != config.Off, &all.Admin, "admin-listen"},
		{"gateway", s.Listen, gateway, &all.Gateway, "listen"},
	} {
		if !d.wanted {
			continue
		}
		l, err := net.Listen("tcp", d.address)
		if err != nil {
			all.Close()
			without := "; without it: --" + d.flag + " off"
			if d.name == "gateway" { // without it, there are no routes
				without = ""
			}
			return server.Listeners{}, fmt.Errorf("%s: %w (elsewhere: --%s ADDRESS%s)", d.name, err, d.flag, without)
		}
		*d.to = l
		log.Info(d.name, "address", l.Addr().String())
	}
	return all, nil
}

// elsewhere adds to the error of a listener that cannot be opened how to give it another address.
func elsewhere(err error, how string) error {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%w (elsewhere: %s)", err, how)
	}
	return err
}

// startDemo starts an upstream, routes the gateway to it, and prints what to try.
func startDemo(s *config.Settings, listeners server.Listeners, out io.Writer) (stop func(), err error) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from the upstream: %s %s\n", r.Method, r.URL.Path)
	}))
	u, err := url.Parse(upstream.URL)
	if err != nil {
		upstream.Close()
		return nil, err
	}
	s.Routes = []config.Route{{Path: "/", Upstream: u}}
	_, port, err := net.SplitHostPort(listeners.Gateway.Addr().String())
	if err != nil {
		upstream.Close()
		return nil, err
	}
	dashboard, commands := "", ""
	if listeners.Admin != nil {
		address, flag := listeners.Admin.Addr().String(), ""
		if s.Admin.Dashboard {
			dashboard = " The dashboard is at http://" + address + "/."
		}
		if address != config.Default().Admin.Listen {
			flag = " --admin http://" + address
		}
		commands = fmt.Sprintf("Then see who was refused:\n\n  %[1]s top%[2]s\n  %[1]s offenders%[2]s\n\n", os.Args[0], flag)
	}
	fmt.Fprintf(out, `Stint limits http://localhost:%[1]s in front of a demo upstream.%[2]s Try:

  curl -i http://localhost:%[1]s/hello
  for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%%{http_code}\n' http://localhost:%[1]s/api; done
  for i in $(seq 11); do curl -s -X POST http://localhost:%[1]s/login; done

%[3]s`, port, dashboard, commands)
	return upstream.Close, nil
}

// limitMemory sets the collector's limit to nine tenths of f's memory where exceeding it ends
// this process: a cgroup's, or the settings'. GOMEMLIMIT has priority.
func limitMemory(f *config.Footprint, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" || f.From != "cgroup" && f.From != "setting" {
		return
	}
	limit := f.Memory / 10 * 9
	debug.SetMemoryLimit(limit)
	log.Info("memory limit of the collector, for GOMEMLIMIT is not given", "limit", config.ByteSize(limit).String(), "from", f.From)
}
