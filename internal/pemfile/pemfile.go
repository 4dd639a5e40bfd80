// Package pemfile reads certificates from files of PEM that may be replaced at any time.
package pemfile

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// Certificates reads the certificates in a file, at least one. A truncated block, as while a file
// is written, is an error; the standard library skips it.
func Certificates(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if bytes.Contains(text, []byte("-----BEGIN")) {
		return nil, errors.New("it ends within a block of PEM")
	}
	if len(all) == 0 {
		return nil, errors.New("no certificate in it")
	}
	return all, nil
}

// Pool is a pool of certificates.
func Pool(of []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range of {
		pool.AddCert(c)
	}
	return pool
}
