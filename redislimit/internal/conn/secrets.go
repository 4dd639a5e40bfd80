package conn

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint/internal/pemfile"
	"github.com/stintdev/stint/internal/readfile"
)

const longestSecret = 1 << 20

// readSecret reads a small regular file; other kinds could block the reader.
func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	text, err := readfile.UpTo(path, longestSecret+1)
	if err == nil && len(text) > longestSecret {
		err = fmt.Errorf("%s is larger than %d bytes", path, longestSecret)
	}
	return text, err
}

// secretFiles are the files that an address names, and how connections are encrypted.
type secretFiles struct {
	password, sentinelPassword string
	ca, cert, key              string
	serverName                 string
	chainOnly                  bool // the server's certificate may have any name
	encrypted                  bool
}

func (f *secretFiles) any() bool {
	return f.password+f.sentinelPassword+f.ca+f.cert+f.key != ""
}

// secrets are the contents of the files at one time; an engine uses one version.
type secrets struct {
	password, sentinelPassword string
	tls                        *tls.Config // nil: not encrypted
	cas                        []*x509.Certificate
	leaf                       *x509.Certificate // shown to the server; nil: none
	digest                     [sha256.Size]byte // of all files
}

func (f *secretFiles) read() (*secrets, error) {
	s := new(secrets)
	digest := sha256.New()
	file := func(name string) ([]byte, error) {
		if name == "" {
			return nil, nil
		}
		text, err := readSecret(name)
		fmt.Fprintf(digest, "%d\n", len(text))
		digest.Write(text)
		return text, err
	}
	for _, p := range []struct {
		file, parameter string
		to              *string
	}{{f.password, "password_file", &s.password}, {f.sentinelPassword, "sentinel_password_file", &s.sentinelPassword}} {
		text, err := file(p.file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.parameter, err)
		}
		// The end of the line is not part of a password.
		*p.to = strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
		if p.file != "" && *p.to == "" {
			return nil, fmt.Errorf("%s: %s is empty", p.parameter, p.file)
		}
	}
	ca, err := file(f.ca)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	cert, err1 := file(f.cert)
	key, err2 := file(f.key)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("cert and key: %w", err)
	}
	digest.Sum(s.digest[:0])
	if !f.encrypted {
		return s, nil
	}
	return s, s.encrypt(f, ca, cert, key)
}

func (s *secrets) encrypt(f *secretFiles, ca, cert, key []byte) (err error) {
	s.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.serverName}
	if f.ca != "" {
		if s.cas, err = pemfile.Certificates(ca); err != nil {
			return fmt.Errorf("ca: %s: %w", f.ca, err)
		}
		s.tls.RootCAs = pemfile.Pool(s.cas)
	}
	if f.cert != "" {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("cert and key: %w", err)
		}
		if s.leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return fmt.Errorf("cert and key: %w", err)
		}
		s.tls.Certificates = []tls.Certificate{pair}
	}
	if f.chainOnly {
		s.tls.InsecureSkipVerify = true // VerifyConnection verifies instead
		s.tls.VerifyConnection = verifyChain(s.tls.RootCAs)
	}
	return nil
}

// verifyChain checks that one of roots (nil: the system's) has signed a server's certificate,
// whatever its name.
func verifyChain(roots *x509.CertPool) func(tls.ConnectionState) error {
	return func(c tls.ConnectionState) error {
		between := x509.NewCertPool()
		for _, cert := range c.PeerCertificates[1:] {
			between.AddCert(cert)
		}
		_, err := c.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
		return err
	}
}

// with returns the options with which rueidis connects to t.
func (t *Target) with(s *secrets) rueidis.ClientOption {
	o := t.option
	o.DialCtxFn = dialGuarded(t.network, s.tls)
	if t.files.password == "" && t.files.sentinelPassword == "" {
		return o
	}
	server := rueidis.AuthCredentials{Username: o.Username, Password: o.Password + s.password} // one of them is empty
	sentinel := rueidis.AuthCredentials{Username: o.Sentinel.Username, Password: o.Sentinel.Password + s.sentinelPassword}
	o.AuthCredentialsFn = func(c rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		if _, isSentinel := c.Address.(sentinelAddr); isSentinel {
			return sentinel, nil
		}
		return server, nil
	}
	return o
}
