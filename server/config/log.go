package config

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
)

// Log says what is logged, and how. JSON and Level are for LogWriter.Loggers; a Server uses the Logger of its
// Config.
type Log struct {
	// JSON writes lines as JSON objects; else they are key=value text.
	JSON bool
	// Level is the lowest level that is logged. Above slog.LevelInfo, lines about changes by the admin API,
	// refusals by limits and newly taken rules are left out.
	Level slog.Level
	// Refusals is how many refusals each rule logs a second, and how many violations by responses. The rest
	// is counted in one line. All rules together log at most 20 times as many. 0: none are logged.
	Refusals int64
	// Access logs a line for each request to the gateway.
	Access bool
}

// Handler returns a Handler that writes lines to w as l says. It writes each line with one
// call.
func (l Log) Handler(w io.Writer) slog.Handler {
	o := &slog.HandlerOptions{Level: l.Level}
	if l.JSON {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}

// mostRefusals bounds Log.Refusals.
const mostRefusals = 1000

// value is the section log of the settings.
func (l *Log) value(r *yamlnode.Reader) schema.Value {
	rows := schema.Rows{
		{Name: "format", Value: schema.Parsed(r, &l.JSON, parseLogFormat, schema.Words("text", "json")), Default: "text",
			Says: "Lines of key=value text, or of JSON."},
		{Name: "level", Value: schema.Parsed(r, &l.Level, parseLogLevel, schema.Words("debug", "info", "warn", "error")), Default: "info",
			Says: "The lowest level logged. Above info, lines about admin API changes, refusals by limits and new rules are left out."},
		{Name: "refusals", Value: schema.Number(r, &l.Refusals, 0, mostRefusals), Default: "5", See: "logs.md#lines-about-refusals",
			Says: "Most refusals that each rule logs a second, and as many violations by responses. One line counts the rest."},
		{Name: "access", Value: schema.Bool(r, &l.Access), Default: "false", See: "logs.md#the-access-log",
			Says: "Logs each request to the gateway."},
	}
	return schema.Section(r, rows, func(_ *yamlnode.Node, fields map[string]*yamlnode.Node) {
		if l.Access && l.Level > slog.LevelInfo {
			r.Report(fields["access"], "access: its lines have the level info, so level must be info or debug")
		}
	})
}

// parseLogFormat reports whether the format is JSON.
func parseLogFormat(text string) (bool, error) {
	switch text {
	case "text":
		return false, nil
	case "json":
		return true, nil
	}
	return false, fmt.Errorf("format %.60q: want text or json", text)
}

var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

func parseLogLevel(text string) (slog.Level, error) {
	level, ok := logLevels[text]
	if !ok {
		return 0, fmt.Errorf("level %.60q: want debug, info, warn or error", text)
	}
	return level, nil
}
