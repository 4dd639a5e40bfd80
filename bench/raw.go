package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// run is all results, and their machine.
type run struct {
	about
	checked []checked
	tables  []*measured
}

// about is the first line of the raw figures.
type about struct {
	Date    time.Time
	Took    time.Duration
	Rounds  int
	Machine machine
}

// line is a line of the raw figures: one of the three is set.
type line struct {
	Run   *about   `json:"run,omitempty"`
	Check *checked `json:"check,omitempty"`
	*Turn
}

// Turn is exported because only then can encoding/json fill in a struct embedded by a pointer.
type Turn struct {
	Table, Subject string
	Round          int
	BytesPerKey    float64
	sample
}

func (r *run) raw(w io.Writer) error {
	out := json.NewEncoder(w)
	err := out.Encode(line{Run: &r.about})
	for i := range r.checked {
		err = errors.Join(err, out.Encode(line{Check: &r.checked[i]}))
	}
	for _, m := range r.tables {
		for _, s := range m.results {
			for i, one := range s.Samples {
				err = errors.Join(err, out.Encode(line{Turn: &Turn{m.table.name, s.subject.name, i, s.BytesPerKey, one}}))
			}
		}
	}
	return err
}

// readRun reads a run from its raw figures. They have no profiles.
func readRun(path string) (*run, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, all := new(run), tables(false)
	for in := json.NewDecoder(file); ; {
		var l line
		switch err := in.Decode(&l); {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		case l.Run != nil:
			r.about = *l.Run
		case l.Check != nil:
			r.checked = append(r.checked, *l.Check)
		case l.Turn != nil:
			if err := r.add(all, l.Turn); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
}

// add adds a turn, after all earlier ones of the run.
func (r *run) add(all []table, l *Turn) error {
	if n := len(r.tables); n == 0 || r.tables[n-1].table.name != l.Table {
		for i := range all {
			if all[i].name == l.Table {
				r.tables = append(r.tables, &measured{table: &all[i]})
			}
		}
	}
	if len(r.tables) == 0 {
		return fmt.Errorf("there is no table %q", l.Table)
	}
	m := r.tables[len(r.tables)-1]
	s := m.find(l.Subject)
	for i := range m.table.subjects {
		if s == nil && m.table.name == l.Table && m.table.subjects[i].name == l.Subject {
			m.results = append(m.results, result{subject: &m.table.subjects[i], BytesPerKey: l.BytesPerKey})
			s = &m.results[len(m.results)-1]
		}
	}
	if s == nil {
		return fmt.Errorf("there is no %q in a table %q", l.Subject, l.Table)
	}
	s.Samples = append(s.Samples, l.sample)
	return nil
}
