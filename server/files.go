package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
)

// watchedFiles are small files that belong together, such as a certificate and its
// key. What they hold tells whether they have changed, not their times: that also
// sees what Kubernetes does to a mounted Secret (it swaps a link two directories
// up), and the second half of a pair that was written within one tick of a clock.
type watchedFiles struct {
	paths []string
	seen  [sha256.Size]byte // of what the last reading found; a digest, for it may be secret
}

// longestFile is the size of the largest file that is read, in bytes.
const longestFile = 1 << 20

// read is what each of the files holds, or why one cannot be read, and whether the
// last reading found something else.
func (f *watchedFiles) read() (contents [][]byte, changed bool, err error) {
	digest := sha256.New()
	var errs []error
	for _, path := range f.paths {
		data, err := readSmall(path)
		if err != nil {
			errs = append(errs, err)
		}
		fmt.Fprintf(digest, "%d %v\n", len(data), err)
		digest.Write(data)
		contents = append(contents, data)
	}
	before := f.seen
	digest.Sum(f.seen[:0])
	return contents, f.seen != before, errors.Join(errs...)
}

func readSmall(path string) ([]byte, error) {
	data, err := readfile.UpTo(path, longestFile+1)
	if err != nil {
		return nil, err
	}
	if len(data) > longestFile {
		return nil, fmt.Errorf("%s: larger than 1 MiB", path)
	}
	return data, nil
}

// Open reads the certificates, tokens, secrets and keys of tokens that the settings
// name. Run does it where it was not done. Until then, no token is known, no claim, a
// request that a rule needs a secret for is an error, and upstreams with files for TLS
// are not reached. It returns an error, too, if the rules name secrets that the settings
// do not have. What is kept in the settings' StateDir is in force when it returns.
func (s *Server) Open() error {
	s.files.Lock()
	defer s.files.Unlock()
	if s.opened {
		return nil
	}
	if _, err := s.secrets.reload(true); err != nil {
		return err
	}
	if _, err := s.claims.reloadFile(true); err != nil {
		return fmt.Errorf("jwt: %w", err)
	}
	var certificates []*certificate
	for _, c := range []struct {
		name  string
		files *config.TLSFiles
	}{{gatewayDoor, s.settings.TLS}, {checkDoor, s.settings.CheckTLS}, {adminDoor, s.settings.Admin.TLS}} {
		if c.files == nil {
			continue
		}
		opened, err := openCertificate(c.name, c.files)
		if err != nil {
			return fmt.Errorf("%s: tls: %w", c.name, err)
		}
		certificates = append(certificates, opened)
	}
	gates := [...]*gate{s.adminGate, s.checkGate}
	var tokens [len(gates)]*Tokens
	for i, g := range gates {
		var err error
		if tokens[i], err = OpenTokens(g.callers.Tokens); err != nil {
			return fmt.Errorf("%s: %w", g.api, err)
		}
	}
	if err := s.openUpstreams(); err != nil {
		return err
	}
	if err := s.control.Open(); err != nil {
		return err
	}
	s.certificates = certificates
	for _, c := range certificates {
		now := c.now.Load()
		s.tellOf(c.listener, "client_ca", now.leaf, now.cas)
	}
	for i, g := range gates {
		g.tokens.Store(tokens[i])
	}
	s.opened = true
	return nil
}

// lookEvery is how often these files are looked at.
const lookEvery = 5 * time.Second

// watchFiles takes over what the files come to hold that Open has read, until ctx is
// done.
func (s *Server) watchFiles(ctx context.Context) {
	s.tellOfStore()
	every(ctx, lookEvery, func() {
		s.reloadFiles(false)
		s.tellOfStore()
	})
}

// ReloadFiles reads the files that Open has read now, changed or not, as Run and Follow
// do every 5 seconds where they have changed. What is wrong is logged, and
// what was there before stays.
func (s *Server) ReloadFiles() { s.reloadFiles(true) }

func (s *Server) reloadFiles(asked bool) {
	s.files.Lock()
	defer s.files.Unlock()
	if !s.opened {
		return
	}
	for _, c := range s.certificates {
		s.reloadCertificate(c, asked)
	}
	s.reloadUpstreams(asked)
	for _, of := range [...]struct {
		what   string
		reload func(asked bool) (changed bool, err error)
	}{
		{"tokens", s.adminGate.tokens.Load().reload},
		{"tokens of the check API", s.checkGate.tokens.Load().reload},
		{"secrets", s.secrets.reload},
		{"keys of tokens", s.claims.reloadFile},
	} {
		changed, err := of.reload(asked)
		if err != nil {
			s.log.Error(of.what+" not taken; those of before stay", "error", err)
		}
		if changed {
			s.log.Info(of.what + " taken")
		}
	}
}
