package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
)

// explainFile tells what the rules at a path would decide, in the words of a server
// that has just started with them.
func explainFile(ctx context.Context, a *admin, path string, q *adminapi.ExplainRequest, out io.Writer) error {
	settings, set, err := readConfig(path)
	if err != nil {
		return err
	}
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	in, err := server.ReadInput(body)
	if err != nil {
		return err
	}
	s, err := offline(settings, server.Config{Rules: set})
	if err != nil {
		return err
	}
	defer s.Close()
	explained, err := s.Explain(ctx, in)
	if err != nil {
		return err
	}
	data, err := json.Marshal(explained)
	if err != nil {
		return err
	}
	return show(a, out, data, func(w io.Writer, e adminapi.Explanation) {
		fmt.Fprintf(w, "by %s alone: nothing is counted here, and nothing changed at run time\n", plain(path))
		tellExplanation(w, e)
	})
}

// offline is a server that nobody reaches: of the settings it has only what tells which
// requests there are to the rules.
func offline(from config.Settings, c server.Config) (*server.Server, error) {
	c.Settings = config.Default()
	c.Settings.DecisionTimeout = time.Minute // nobody waits
	c.Settings.Secrets, c.Settings.JWT, c.Settings.AllowAmbiguous = from.Secrets, from.JWT, from.AllowAmbiguous
	for _, r := range from.Routes {
		r.TLS = nil
		c.Settings.Routes = append(c.Settings.Routes, r)
	}
	s := server.New(c)
	if err := s.Open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}
