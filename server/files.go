package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/lists"
	"github.com/stintdev/stint/server/internal/storage"
	"github.com/stintdev/stint/server/rules"
)

// openFiles are the files that the settings name, beside those of upstreams and of control.
type openFiles struct {
	sync.Mutex   // while they are read
	opened       bool
	tracesWrong  error // an error in the environment of tracing
	certificates certificates
	secrets      *secretFiles
	lists        *lists.Reader
}

// Open reads the certificates, tokens, secrets, keys of tokens and lists of networks that the settings name.
// Run calls it if nobody has. Before Open, no token is valid, requests have no claims, a request that needs a
// secret is an error, lists are empty, and upstreams and webhooks with TLS files are not reached. Open waits
// up to 5 seconds for lists from URLs, and leaves those empty that it cannot fetch. It returns an error if a
// file is wrong, or if the rules need secrets or lists that the settings do not have. When it returns, the
// state in StateDir is in force.
func (s *Server) Open() error {
	s.files.Lock()
	defer s.files.Unlock()
	if s.files.opened {
		return nil
	}
	if _, err := s.files.secrets.reload(true); err != nil {
		return err
	}
	if _, err := s.claims.Reload(true); err != nil {
		return fmt.Errorf("jwt: %w", err)
	}
	if err := s.files.lists.Open(); err != nil {
		return err
	}
	var opened []*certificate
	for _, c := range []struct {
		name  string
		files *config.TLSFiles
	}{{gatewayListener, s.settings.TLS}, {checkListener, s.settings.CheckTLS}, {adminListener, s.settings.Admin.TLS}} {
		if c.files == nil {
			continue
		}
		file, err := openCertificate(c.name, c.files)
		if err != nil {
			return fmt.Errorf("%s: tls: %w", c.name, err)
		}
		opened = append(opened, file)
	}
	for _, a := range [...]*auth.Authenticator{s.admin.callers, s.door.Callers} {
		if err := a.ReadTokens(); err != nil {
			return err
		}
	}
	if s.files.tracesWrong != nil {
		return s.files.tracesWrong
	}
	if _, err := s.watch.Tracing.Reload(true); err != nil {
		return err
	}
	if err := s.alerts.Check(); err != nil {
		return err
	}
	if err := s.gateway.Open(); err != nil {
		return err
	}
	if err := s.control.Open(); err != nil {
		return err
	}
	for _, c := range opened {
		s.files.certificates.add(c)
	}
	s.files.opened = true
	return nil
}

// lookEvery is how often these files are checked.
const lookEvery = 5 * time.Second

// watchFiles reloads the files of Open when they change, until ctx is done.
func (s *Server) watchFiles(ctx context.Context) {
	s.store.TellCertificates()
	storage.Every(ctx, lookEvery, func() {
		s.reloadFiles(false)
		s.store.TellCertificates()
	})
}

// ReloadFiles reads all files of Open again, even if they have not changed. Run and Follow read changed files
// every 5 seconds. If a file is wrong, the error is logged and the former content stays in use.
func (s *Server) ReloadFiles() { s.reloadFiles(true) }

func (s *Server) reloadFiles(asked bool) {
	s.files.Lock()
	defer s.files.Unlock()
	if !s.files.opened {
		return
	}
	s.files.certificates.reload(asked)
	s.gateway.Reload(asked)
	for _, of := range [...]struct {
		what   string
		reload func(asked bool) (changed bool, err error)
	}{
		{"tokens", s.admin.callers.Reload},
		{"tokens of the check API", s.door.Callers.Reload},
		{"secrets", s.files.secrets.reload},
		{"keys of tokens", s.claims.Reload},
		{"lists", s.files.lists.Reload},
		{"headers for traces", s.watch.Tracing.Reload},
	} {
		changed, err := of.reload(asked)
		if err != nil {
			s.watch.Log.Error(of.what+" not taken; the previous ones stay in force", "error", err)
		}
		if changed {
			s.watch.Log.Info(of.what + " taken")
		}
	}
}

// secretFiles reads the settings' secrets, which expressions hash with.
type secretFiles struct {
	to    *rules.Secrets
	files []secretFile
}

type secretFile struct {
	config.Secret
	watched readfile.Watched
}

// shortestSecret is the least size of a secret, in bytes.
const shortestSecret = 16

func newSecretFiles(s *config.Settings) *secretFiles {
	f := &secretFiles{to: s.KnownSecrets()}
	for _, secret := range s.Secrets {
		f.files = append(f.files, secretFile{secret, readfile.Watched{Paths: []string{secret.File}}})
	}
	return f
}

// reload reads the files that have changed, or all of them. A secret that is wrong stays as it
// was. Errors name the secret and never contain its text. It must not run concurrently.
func (f *secretFiles) reload(asked bool) (changed bool, err error) {
	var errs []error
	for i := range f.files {
		s := &f.files[i]
		contents, is, err := s.watched.Read()
		if !is && !asked {
			continue
		}
		if err == nil {
			err = f.take(s, contents[0])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("secret %q: %w", s.Name, err))
			continue
		}
		changed = changed || is
	}
	return changed, errors.Join(errs...)
}

func (f *secretFiles) take(s *secretFile, text []byte) error {
	text = bytes.TrimRight(text, "\r\n")
	if len(text) < shortestSecret {
		return fmt.Errorf("too short: want at least %d bytes, for example from openssl rand -hex 32", shortestSecret)
	}
	f.to.Set(s.Name, text)
	return nil
}
