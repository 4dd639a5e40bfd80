package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"

	"github.com/stintdev/stint/internal/pemfile"
	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/watch"
)

// certificate has a listener's certificate and the authorities of its clients. The files are reloaded while
// it serves. Handshakes use the last content; connections stay as they are.
type certificate struct {
	listener string
	files    readfile.Watched
	now      atomic.Pointer[loaded]
}

// loaded is the content of a certificate's files.
type loaded struct {
	config *tls.Config
	leaf   *x509.Certificate
	cas    []*x509.Certificate
}

func openCertificate(listener string, files *config.TLSFiles) (*certificate, error) {
	c := &certificate{listener: listener, files: readfile.Watched{Paths: files.Paths()}}
	contents, _, err := c.files.Read()
	if err != nil {
		return nil, err
	}
	return c, c.take(contents)
}

// config is the configuration of a listener. It has no certificate: each handshake gets one.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.now.Load().config, nil
		},
	}
}

// Certificate opens the certificate of a listener that Run does not serve, and returns the
// configuration of its connections. Like those of Run's listeners, it is reloaded when its files
// change, has a metric, by the listener's name, and is logged. The configuration must not be
// changed, but its clone may be. Call it before Run. The error says which file cannot be used.
func (s *Server) Certificate(listener string, files *config.TLSFiles) (*tls.Config, error) {
	c, err := openCertificate(listener, files)
	if err != nil {
		return nil, err
	}
	s.files.Lock()
	defer s.files.Unlock()
	s.files.certificates.add(c)
	return c.config(), nil
}

// take makes handshakes use contents, which are of the files of TLSFiles.Paths. An error changes nothing.
func (c *certificate) take(contents [][]byte) error {
	chain, err := pemfile.Certificates(contents[0])
	if err != nil {
		return fmt.Errorf("%s: %w", c.files.Paths[0], err)
	}
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.files.Paths[0], c.files.Paths[1], err)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{pair},
	}
	now := &loaded{config: config, leaf: chain[0]}
	if len(contents) > 2 {
		if now.cas, err = pemfile.Certificates(contents[2]); err != nil {
			return fmt.Errorf("%s: %w", c.files.Paths[2], err)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs = pemfile.Pool(now.cas)
		// A resumed session presents no certificate. Without resumption, a client of a removed authority
		// cannot come back.
		config.SessionTicketsDisabled = true
	}
	c.now.Store(now)
	return nil
}

// certificates are those of the listeners with TLS.
type certificates struct {
	all   []*certificate
	watch *watch.Watch
}

func (cs *certificates) add(c *certificate) {
	cs.all = append(cs.all, c)
	cs.tell(c)
}

func (cs *certificates) tell(c *certificate) {
	now := c.now.Load()
	cs.watch.Certificate(c.listener, "client_ca", now.leaf, now.cas)
}

// reload reloads the files that have changed or, if asked, all.
func (cs *certificates) reload(asked bool) {
	for _, c := range cs.all {
		contents, changed, err := c.files.Read()
		if !changed && !asked {
			continue
		}
		if err == nil {
			err = c.take(contents)
		}
		if err != nil {
			cs.watch.Metrics.CertificatesRefused.Inc()
			cs.watch.Log.Error("certificate not taken; the previous one stays in force", "listener", c.listener, "error", err)
			continue
		}
		cs.watch.Metrics.CertificatesTaken.Inc()
		cs.watch.Log.Info("certificate taken", "listener", c.listener, "expires", c.now.Load().leaf.NotAfter)
		cs.tell(c)
	}
}
