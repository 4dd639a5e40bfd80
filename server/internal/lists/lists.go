// Package lists reads the named lists of networks that expressions look into, from files and URLs, and reads
// them again while the server runs.
package lists

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// Reader reads lists. New makes it. Findings and the metrics may be read at any time; see the other methods.
type Reader struct {
	to     *rules.Lists
	client *http.Client
	log    *slog.Logger
	all    []*list

	building sync.Mutex // one list at a time is parsed: requests need the other cores and the memory
}

// list is one list, and where it comes from.
type list struct {
	config.List
	source string // for people: the file, or the URL without its query
	file   readfile.Large

	// What the server of the URL last said of the content, and a digest of it. Only one goroutine fetches.
	etag, modified string
	digest         [sha256.Size]byte

	mu        sync.Mutex
	networks  int       // in force
	taken     bool      // networks were read once
	confirmed time.Time // when the source last had these networks; before taken, when New was called
	since     time.Time // when the source began to fail
	failure   error     // of the last reading; nil: it did not fail
}

// New returns a Reader of the settings' lists, which sets their networks in to: at first none, because a list
// that was not read is an error of each request. client fetches URLs.
func New(settings []config.List, client *http.Client, log *slog.Logger, to *rules.Lists) *Reader {
	r := &Reader{to: to, client: client, log: log}
	now := time.Now()
	for _, s := range settings {
		r.all = append(r.all, &list{
			List: s, source: sourceOf(&s), confirmed: now,
			file: readfile.Large{Path: s.File, Most: maxBytes},
		})
		to.Set(s.Name, rules.NewNetworks())
	}
	return r
}

// sourceOf is where a list comes from. The query of a URL may have a token.
func sourceOf(s *config.List) string {
	u, err := url.Parse(s.URL)
	if s.URL == "" || err != nil {
		return s.File
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Reload reads the files that have changed, or all of them. A list whose file is wrong stays as it was. It
// must not run concurrently.
func (r *Reader) Reload(asked bool) (changed bool, err error) {
	var errs []error
	for _, l := range r.all {
		if l.File == "" {
			continue
		}
		is, err := r.reload(l, asked)
		if err != nil {
			errs = append(errs, fmt.Errorf("list %q: %w", l.Name, err))
		}
		changed = changed || is
	}
	return changed, errors.Join(errs...)
}

// reload reads a file. It returns an error once: until the file changes, or if asked.
func (r *Reader) reload(l *list, asked bool) (changed bool, err error) {
	data, changed, err := l.file.Read(asked)
	switch {
	case err != nil:
		l.failed(err)
		if !changed && !asked {
			err = nil
		}
		return false, err
	case !changed && !asked:
		l.confirm()
		return false, nil
	}
	if err := r.take(l, data); err != nil {
		return false, err
	}
	return changed, nil
}

// take puts the networks in data in force.
func (r *Reader) take(l *list, data []byte) error {
	r.building.Lock()
	defer r.building.Unlock()
	networks, err := parse(l.source, l.Pointer, data)
	if err != nil {
		l.failed(err)
		return err
	}
	r.to.Set(l.Name, networks)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.networks, l.taken = networks.Len(), true
	l.confirmed, l.failure = time.Now(), nil
	return nil
}

// confirm records that the source still has what was read last. If that was wrong, it still is.
func (l *list) confirm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		l.confirmed = time.Now()
	}
}

// failed records that the source has no networks.
func (l *list) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		l.since = time.Now()
	}
	l.failure = err
}

// Findings has a finding for each list that could not be read when last tried.
func (r *Reader) Findings() (all []rules.Finding) {
	for _, l := range r.all {
		if f, found := l.finding(); found {
			all = append(all, f)
		}
	}
	return all
}

func (l *list) finding() (f rules.Finding, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return f, false
	}
	f.Code = rules.CodeListStale
	if wrong, ok := errors.AsType[*contentError](l.failure); ok {
		f.Where = wrong.places[0]
	}
	rest := "it is empty, and so matches nobody"
	if l.taken {
		rest = fmt.Sprintf("its networks of %s (%d) stay in force", clock(l.confirmed), l.networks)
	}
	f.Text = fmt.Sprintf("the list %q cannot be read since %s: %s; %s", l.Name, clock(l.since), l.failure, rest)
	return f, true
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

var (
	networksDesc = prometheus.NewDesc("stint_list_networks", "Networks of a list.", []string{"list"}, nil)
	ageDesc      = prometheus.NewDesc("stint_list_age_seconds", "Time since the source of a list last had the networks in force.", []string{"list"}, nil)
)

// Describe is for prometheus.Collector.
func (r *Reader) Describe(to chan<- *prometheus.Desc) { to <- networksDesc; to <- ageDesc }

// Collect is for prometheus.Collector.
func (r *Reader) Collect(to chan<- prometheus.Metric) {
	for _, l := range r.all {
		l.mu.Lock()
		networks, age := l.networks, time.Since(l.confirmed)
		l.mu.Unlock()
		to <- prometheus.MustNewConstMetric(networksDesc, prometheus.GaugeValue, float64(networks), l.Name)
		to <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, age.Seconds(), l.Name)
	}
}
