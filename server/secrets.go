package server

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/config"
)

// secretFiles reads the settings' secrets into what expressions hash with.
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

// reload reads the files that have changed, or all if it was asked for. A secret that
// is wrong stays as it was. Errors name the secret and never hold its text. It must not
// run twice at once.
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
		return fmt.Errorf("too short: want at least %d bytes, such as of openssl rand -hex 32", shortestSecret)
	}
	f.to.Set(s.Name, text)
	return nil
}
