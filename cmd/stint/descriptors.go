package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

// descriptors are where a server gets its rules from while it runs: its own files, and those of Envoy's
// form or a management server.
type descriptors struct {
	from   config.EnvoySource
	config string      // a rules file or a directory of them; empty: there is none
	files  configFiles // at the start
	given  []config.Given
	before config.Settings // of files and given
	log    *slog.Logger
	by     *supervisor // is told while files are read again
	// hangups means that SIGHUP has files read again. Otherwise it ends the program, as when a terminal
	// is closed.
	hangups bool
	// loaded means that descriptors were taken, if there are to be some, and domains that those in
	// force have some.
	loaded, domains atomic.Bool
	observer        envoy.Observer // nil: nobody is told
	tried           bool
	wrong           error // with the last attempt
}

// sources are those that c and the settings name.
func (c *choice) sources(settings *config.Settings, by *supervisor) *descriptors {
	log := by.log
	d := &descriptors{config: c.config, files: c.files, given: c.given, before: c.settings, log: log, by: by, hangups: c.config != "" || settings.Envoy != nil}
	if settings.Envoy != nil {
		d.from = settings.Envoy.EnvoySource
	}
	switch {
	case d.from.XDS != nil:
	case d.files.wrong != nil:
		log.Error("no configuration; calls fail until there is one", "error", d.files.wrong)
		d.note(nil, d.files.wrong)
	default:
		d.note(d.files.all(), nil)
	}
	return d
}

// note records the outcome of an attempt to load files.
func (d *descriptors) note(files []rules.File, err error) {
	if d.tried, d.wrong = true, err; d.observer != nil {
		d.observer.Loaded(err)
	}
	if err == nil {
		d.domains.Store(slices.ContainsFunc(files, func(f rules.File) bool { return f.Envoy }))
		d.loaded.Store(true)
	}
}

// observe tells o of the first attempt, if there was one, and of all that come.
func (d *descriptors) observe(o envoy.Observer) {
	if d.observer = o; d.tried {
		o.Loaded(d.wrong)
	}
}

// follow takes over rules from now on, until ctx is done. It returns when there are descriptors or none
// are needed to start; false: ctx is done.
func (d *descriptors) follow(ctx context.Context, s *server.Server) bool {
	files := d.files.all()
	if d.files.wrong != nil {
		files = orEmpty(d.files.own)
	}
	t := &taker{s: s, log: d.log, loaded: d.note, given: d.given, before: d.before, own: d.files.own}
	if d.from.XDS != nil {
		t.loaded = nil // what the management server sends counts
	}
	hangup := hangup{by: d.by, s: s}
	if d.config != "" || d.files.from != nil {
		hangup.rules, hangup.read = make(chan os.Signal), make(chan struct{})
		w := rules.Watcher{Path: d.config, Envoy: d.files.from, Now: hangup.rules, Changed: d.by.around(t.ownChanged)}
		w.Answered = func() {
			select {
			case hangup.read <- struct{}{}:
			case <-ctx.Done():
			}
		}
		go w.Run(ctx, files)
	}
	if d.hangups {
		go hangup.run(ctx, onHangup(ctx))
	}
	if d.from.XDS == nil {
		return true
	}
	first := make(chan struct{})
	go envoy.Follow(ctx, d.from.XDS, d.log, func(files []rules.File) error {
		for i := range files {
			files[i].MergeDomain = d.from.MergeDomains
		}
		had := d.loaded.Load()
		err := t.sent(files, d.note)
		if err == nil && !had {
			close(first)
		}
		return err
	})
	if d.from.StartWithoutDescriptors {
		return true
	}
	d.by.status("waiting for the first configuration of the management server")
	d.log.Warn("no port is open before the management server has sent a configuration, unless start_without_descriptors is true, or FORCE_START_WITHOUT_INITIAL_CONFIG of stint envoy", "server", d.from.XDS.Server)
	select {
	case <-first:
		return true
	case <-ctx.Done():
		return false
	}
}
