package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// workerVariable tells a process that it is a worker, and for which subject.
const workerVariable = "STINT_BENCH_WORKER"

type measured struct {
	table   *table
	results []result // in the order of its subjects
}

type result struct {
	subject     *subject
	Samples     []sample
	BytesPerKey float64 // of the process, or of Redis if the keys live there
	shares      *shares // of a server's process; nil: not looked at
}

func startWorker(a assignment) (*child, ready, error) {
	var r ready
	text, err := json.Marshal(a)
	if err != nil {
		return nil, r, err
	}
	w, err := startChild(&r, workerVariable+"="+string(text))
	if err == nil && r.Error != "" {
		w.end()
		err = errors.New(r.Error)
	}
	if err != nil {
		return nil, r, fmt.Errorf("%s, %s: %w", a.Table, a.Subject, err)
	}
	return w, r, nil
}

func (w *child) turn(d time.Duration, how string) (s sample, err error) {
	if _, err = fmt.Fprintf(w.in, "%s%d\n", how, d.Nanoseconds()); err == nil {
		err = w.out.Decode(&s)
	}
	return s, err
}

// measure lets the subjects take turns, in rounds that each begin with another subject. The first round does
// not count.
func measure(t *table, redis *redisServer, rounds int, short bool) (*measured, error) {
	if t.newcomers > 0 {
		return measurePauses(t, rounds, short)
	}
	m := &measured{table: t}
	a := assignment{Table: t.name, Short: short}
	if t.redis || t.store {
		a.Redis = redis.addr
		if err := redis.flush(); err != nil {
			return nil, err
		}
	}
	workers := make([]*child, len(t.subjects))
	for i := range t.subjects {
		a.Subject, a.DB = t.subjects[i].name, i
		before, err := heldInRedis(t, redis)
		if err != nil {
			return nil, err
		}
		w, r, err := startWorker(a)
		if err != nil {
			return nil, err
		}
		defer w.end()
		workers[i] = w
		if t.redis {
			after, err := heldInRedis(t, redis)
			if err != nil {
				return nil, err
			}
			r.BytesPerKey = max(0, after-before) / float64(t.keys)
		}
		m.results = append(m.results, result{subject: &t.subjects[i], BytesPerKey: r.BytesPerKey})
	}
	for round := -1; round < rounds; round++ {
		for j := range workers {
			i := (j + round + 1) % len(workers)
			s, err := oneTurn(t, redis, workers[i])
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", t.name, t.subjects[i].name, err)
			}
			if round >= 0 {
				m.results[i].Samples = append(m.results[i].Samples, s)
			}
		}
	}
	for _, p := range profiledRows {
		for i := range m.results {
			if r := &m.results[i]; t.profile && r.subject.name == p.name {
				s, err := workers[i].turn(10*t.slice, profiled)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", t.name, p.name, err)
				}
				if r.shares, err = sharesOf(s.Profile); err != nil {
					return nil, err
				}
			}
		}
	}
	return m, nil
}

func heldInRedis(t *table, redis *redisServer) (float64, error) {
	if !t.redis {
		return 0, nil
	}
	return redis.memory()
}

func oneTurn(t *table, redis *redisServer, w *child) (sample, error) {
	var before, after float64
	var err error
	if t.redis {
		if before, err = redis.cpu(); err != nil {
			return sample{}, err
		}
	}
	s, err := w.turn(t.slice, "")
	if err == nil && t.redis {
		after, err = redis.cpu()
		s.CPU = after - before
	}
	if err == nil && s.Calls == s.Errors {
		err = fmt.Errorf("nothing was decided: %s", s.Error)
	}
	return s, err
}
