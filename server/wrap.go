package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// Load returns a Server with the rules and settings of the file at path, or of all files in
// that directory, in place of those in c. It is for programs that use the rules in their
// own handlers: see Server.Wrap. Load also reads the files that the settings name.
//
// Without a Limiter in c, Load opens the store that the settings name, as Config.OpenStore does, and
// Server.Close closes it. With a Limiter, the store in the file has no effect, and c also needs Documents if
// the fleet shares rules. Addresses of listeners in the file have no effect.
//
// Bans, overrides, switches and rules that are changed at run time, at any instance of the fleet, and
// files that change take effect until Close: Load calls Server.Follow, unless c says NoFollow. It waits up to
// a second for each store, and up to a second for the fleet's shared documents. If Load returns an error,
// nothing runs in the background.
func Load(path string, c Config) (*Server, error) {
	files, err := rules.Read(path)
	if err != nil {
		return nil, err
	}
	if c.Settings, c.Rules, err = config.Read(files, nil); err != nil {
		return nil, err
	}
	done := func() {}
	if c.Limiter == nil {
		if done, err = c.OpenStore(nil); err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
	} else if c.Settings.RulesFrom == config.FromFleet && c.Documents == nil {
		return nil, errors.New("server: the file has rules: fleet: pass the fleet's Documents to Load")
	}
	s := New(c)
	s.store.Closes = done
	if err := s.Open(); err != nil {
		s.Close()
		return nil, err
	}
	if !c.NoFollow {
		s.Follow(context.Background())
	}
	return s, nil
}
