package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// listen opens the listeners that the settings ask for, and none where one cannot
// be opened.
func listen(s *config.Settings, gateway bool, log *slog.Logger) (server.Listeners, error) {
	var all server.Listeners
	if s.CheckListen == config.Off && !gateway {
		return all, errors.New("nothing to serve: check_listen is off, and there are no routes")
	}
	for _, d := range []struct {
		name, address string
		wanted        bool
		to            *net.Listener
		hint          string
	}{
		{"check API", s.CheckListen, s.CheckListen != config.Off, &all.Check, ""},
		{"probes", s.ProbeListen, s.ProbeListen != config.Off, &all.Probes, ""},
		{"admin API", s.Admin.Listen, s.Admin.Listen != config.Off, &all.Admin,
			` (elsewhere: --admin-listen ADDRESS; without it: --admin-listen off)`},
		{"gateway", s.Listen, gateway, &all.Gateway, ""},
	} {
		if !d.wanted {
			continue
		}
		l, err := net.Listen("tcp", d.address)
		if err != nil {
			all.Close()
			return server.Listeners{}, fmt.Errorf("%s: %w%s", d.name, err, d.hint)
		}
		*d.to = l
		log.Info(d.name, "address", l.Addr().String())
	}
	if !gateway {
		log.Info("no gateway, for there are no routes: give --upstream, or routes in the file")
	}
	return all, nil
}
