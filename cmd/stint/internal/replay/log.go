package replay

import (
	"strings"

	"github.com/stintdev/stint/cmd/stint/internal/accesslog"
)

// Log is what was read of the files.
type Log struct {
	Files []File `json:"files"`
	// Unread are the lines that could not be read, and FirstUnread the first of them.
	Unread      int64        `json:"unread"`
	FirstUnread []UnreadLine `json:"first_unread"`
	// Late are the requests that came too late after others to be replayed in order.
	Late int64 `json:"late"`
	// Share is the share of the requests that it has. 0: all, as far as anybody said.
	Share float64 `json:"share,omitempty"`
	// Interrupted means that the end of the log was not read.
	Interrupted bool `json:"interrupted"`
}

// File is a file, and the form of its lines.
type File struct {
	Path    string `json:"path"`
	Form    string `json:"form,omitempty"`
	Skipped string `json:"skipped,omitempty"` // why it was not read
}

// UnreadLine is a line that could not be read, counted from 1.
type UnreadLine struct {
	File string `json:"file"`
	Line int64  `json:"line"`
	Why  string `json:"why"`
}

// LogOf is what was read of log so far. interrupted means that there is more.
func LogOf(log *accesslog.Log, interrupted bool) Log {
	l := Log{Files: []File{}, FirstUnread: []UnreadLine{}, Late: log.Late(), Interrupted: interrupted}
	sources := log.Sources()
	for _, s := range sources {
		f := File{Path: s.Path, Form: s.Form}
		if s.Skipped != nil {
			f.Skipped = strings.TrimPrefix(s.Skipped.Error(), s.Path+": ")
		}
		l.Files = append(l.Files, f)
	}
	n, first := log.Unread()
	l.Unread = n
	for _, u := range first {
		l.FirstUnread = append(l.FirstUnread, UnreadLine{sources[u.File].Path, u.Line, u.Why})
	}
	return l
}
