package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server"
)

// explainFile tells what the rules at a path would decide, in the words of a server
// that has just started with them.
func explainFile(ctx context.Context, a *admin, path string, q *asked, out io.Writer) error {
	files, err := rules.Read(path)
	if err != nil {
		return err
	}
	of, set, err := compile(files)
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
	settings := server.DefaultSettings()
	settings.AllowAmbiguous = of.AllowAmbiguous
	s := server.New(server.Config{Settings: settings, Rules: set})
	explained, err := s.Explain(ctx, in)
	if err != nil {
		return err
	}
	data, err := json.Marshal(explained)
	if err != nil {
		return err
	}
	return show(a, out, data, func(w io.Writer, e explanation) {
		fmt.Fprintf(w, "by %s alone: nothing is counted here, and nothing changed at run time\n", plain(path))
		tellExplanation(w, e)
	})
}
