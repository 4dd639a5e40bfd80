package redislimit

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// Passwords and certificates in files are read again for each connection, so that
// new ones need no restart. A file that cannot be read then, as when it is just being
// replaced, leaves what was read last.

// longestSecret bounds a file of a password or of certificates.
const longestSecret = 1 << 20

// readSecret reads a small file. What is no regular file could not be read again, or
// could keep a connection waiting.
func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, longestSecret+1))
	if err == nil && len(text) > longestSecret {
		err = fmt.Errorf("%s is larger than %d bytes", path, longestSecret)
	}
	return text, err
}

// reread is a value that is read again each time that it is asked for. The last one
// that could be read stays.
type reread[T any] struct {
	read func() (T, error)

	mu   sync.Mutex
	last T
	has  bool
}

func (r *reread[T]) get() (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := r.read()
	if err != nil && !r.has {
		return now, err
	}
	if err == nil {
		r.last, r.has = now, true
	}
	return r.last, nil
}

// account is what a connection says to authenticate.
type account struct {
	user     string
	password *reread[string] // nil: as the option of rueidis says
}

// newPassword is the password in a file. The end of its line is not part of it.
func newPassword(file, parameter string) *reread[string] {
	return &reread[string]{read: func() (string, error) {
		text, err := readSecret(file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", parameter, err)
		}
		password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
		if password == "" {
			return "", fmt.Errorf("%s: %s is empty", parameter, file)
		}
		return password, nil
	}}
}

func (a *account) credentials() (rueidis.AuthCredentials, error) {
	password, err := a.password.get()
	return rueidis.AuthCredentials{Username: a.user, Password: password}, err
}

// authenticate has each connection read its password again, where that lies in a
// file. rueidis asks one function for servers and Sentinels, whom socket tells apart.
func (t *target) authenticate() {
	if t.server.password == nil && t.sentinel.password == nil {
		return
	}
	o := &t.option
	server, sentinel := t.server, t.sentinel
	fixed := rueidis.AuthCredentials{Username: o.Username, Password: o.Password}
	fixedSentinel := rueidis.AuthCredentials{Username: o.Sentinel.Username, Password: o.Sentinel.Password}
	o.AuthCredentialsFn = func(c rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		_, isSentinel := c.Address.(sentinelAddr)
		switch {
		case isSentinel && sentinel.password != nil:
			return sentinel.credentials()
		case isSentinel:
			return fixedSentinel, nil
		case server.password != nil:
			return server.credentials()
		}
		return fixed, nil
	}
}

// certificates are the files of an encrypted connection. Empty names: none.
type certificates struct{ ca, cert, key, serverName string }

func (c certificates) config() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.serverName}
	if c.ca != "" {
		pem, err := readSecret(c.ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: no certificate in %s", c.ca)
		}
	}
	if c.cert != "" {
		pair, err := c.pair()
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

func (c certificates) pair() (tls.Certificate, error) {
	cert, err1 := readSecret(c.cert)
	key, err2 := readSecret(c.key)
	if err := errors.Join(err1, err2); err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
