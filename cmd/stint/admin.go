package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

const defaultAdmin = "http://127.0.0.1:8090"

// admin is the admin API of a server, as flags and the environment tell to reach
// it. A token is never a flag's value, for everyone on a machine sees those.
type admin struct {
	address, tokenFile string
	ca, cert, keyFile  string
	json               bool
	timeout            time.Duration
	errs               io.Writer // for warnings

	base   *url.URL
	token  string
	client *http.Client
}

// adminFlags adds to f what every command has that speaks to the admin API. Warnings
// go to errs.
func adminFlags(f *flag.FlagSet, errs io.Writer) *admin {
	a := &admin{errs: errs}
	f.StringVar(&a.address, "admin", "", "`URL` of the admin API (default $STINT_ADMIN, or "+defaultAdmin+")")
	f.StringVar(&a.tokenFile, "token-file", "", "`FILE` that holds a token; without it $STINT_TOKEN is the token")
	f.StringVar(&a.ca, "ca", "", "`FILE` with the certificates, as PEM, that the server's must come from")
	f.StringVar(&a.cert, "cert", "", "`FILE` with a certificate, as PEM, that says who asks")
	f.StringVar(&a.keyFile, "key-file", "", "`FILE` with the private key of --cert")
	f.BoolVar(&a.json, "json", false, "print the answer of the API as it came")
	f.DurationVar(&a.timeout, "timeout", 5*time.Second, "`DURATION` to wait for an answer")
	return a
}

// unused says where flags of f tell how to reach a server that nothing is asked of.
func (a *admin) unused(f *flag.FlagSet) error {
	g := given(f)
	for _, name := range []string{"admin", "token-file", "ca", "cert", "key-file", "timeout"} {
		if g[name] {
			return wrong(f, "--%s is for a server, and --config asks none: want one of them", name)
		}
	}
	return nil
}

// open makes a ready, after the flags of f are parsed.
func (a *admin) open(f *flag.FlagSet) error {
	if a.timeout <= 0 {
		return wrong(f, "--timeout %v: want some time, such as 5s", a.timeout)
	}
	if err := a.findBase(); err != nil {
		return wrong(f, "%w", err)
	}
	if (a.cert == "") != (a.keyFile == "") {
		return wrong(f, "--cert and --key-file go together")
	}
	secrets, err := a.tls()
	switch {
	case err != nil:
		return err
	case secrets != nil && a.base.Scheme != "https":
		return wrong(f, "--ca, --cert and --key-file are for an --admin that begins with https")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = secrets
	a.client = &http.Client{
		Timeout:       a.timeout,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if err := a.readToken(); err != nil {
		return err
	}
	if a.token != "" && a.base.Scheme == "http" && !isLoopback(a.base.Hostname()) {
		fmt.Fprintf(a.errs, "stint: warning: the token goes to %s over http, for all on the way to read: give the server tls and --admin https://..., or reach it by ssh -L or kubectl port-forward\n", plain(a.base.Host))
	}
	return nil
}

// isLoopback tells whether what is sent to a host stays on this machine.
func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback() || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}

// findBase reads the URL. An error does not hold it, as a password may be in it.
func (a *admin) findBase() (err error) {
	name, address := "--admin", a.address
	if address == "" {
		name, address = "$STINT_ADMIN", os.Getenv("STINT_ADMIN")
	}
	if address == "" {
		address = defaultAdmin
	}
	a.base, err = url.Parse(strings.TrimRight(address, "/"))
	switch {
	case err != nil, a.base.Scheme != "http" && a.base.Scheme != "https", a.base.Host == "":
		return fmt.Errorf("%s: want a URL such as %s", name, defaultAdmin)
	case a.base.User != nil:
		return fmt.Errorf("%s: a URL with a user is not taken: give a token by --token-file or $STINT_TOKEN", name)
	case a.base.RawQuery != "" || a.base.Fragment != "":
		return fmt.Errorf("%s: want a URL without ? and #, such as %s", name, defaultAdmin)
	}
	return nil
}

// tls is what --ca, --cert and --key-file say; nil: nothing.
func (a *admin) tls() (*tls.Config, error) {
	if a.ca == "" && a.cert == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.ca != "" {
		pem, err := os.ReadFile(a.ca)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca: %s holds no certificate as PEM", a.ca)
		}
	}
	if a.cert != "" {
		pair, err := tls.LoadX509KeyPair(a.cert, a.keyFile)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key-file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// readToken reads the token, if there is one. An error does not hold it.
func (a *admin) readToken() error {
	name := "$STINT_TOKEN"
	a.token = os.Getenv("STINT_TOKEN")
	if a.tokenFile != "" {
		name = "--token-file"
		data, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		if a.token = string(data); strings.TrimSpace(a.token) == "" {
			return errors.New("--token-file: the file is empty: want a token in it")
		}
	}
	a.token = strings.TrimSpace(a.token)
	if strings.ContainsFunc(a.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%s: want one token, of ASCII characters and without blanks", name)
	}
	return nil
}
