package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const defaultAdmin = "http://127.0.0.1:8090"

// admin is a server's admin API. A token is never a flag's value, which everyone can see.
type admin struct {
	address, tokenFile string
	ca, cert, keyFile  string
	json               bool
	decision           string // the ID of the decision that a change is about; empty: none
	timeout            time.Duration
	out, errs          io.Writer // for answers and for warnings

	base   *url.URL
	token  string
	client *http.Client
}

func adminFlags(c *cobra.Command) *admin {
	a, f := &admin{}, c.Flags()
	f.SortFlags = false
	f.StringVar(&a.address, "admin", "", "`URL` of the admin API (default $STINT_ADMIN, or "+defaultAdmin+")")
	f.StringVar(&a.tokenFile, "token-file", "", "read the token from `FILE`; without it, the token is $STINT_TOKEN")
	f.StringVar(&a.ca, "ca", "", "trust the certificate authorities in the PEM `FILE`")
	f.StringVar(&a.cert, "cert", "", "show the server the certificate in the PEM `FILE`")
	f.StringVar(&a.keyFile, "key-file", "", "read the private key of --cert from `FILE`")
	f.BoolVar(&a.json, "json", false, "print the API's JSON answer")
	f.DurationVar(&a.timeout, "timeout", 5*time.Second, "wait `DURATION` for an answer")
	if f.Lookup("reason") != nil {
		f.StringVar(&a.decision, "decision", "", "`ID` of the decision that is the reason, from the log or the header Stint-Decision, for the audit")
	}
	fileFlags(c, "token-file", "ca", "cert", "key-file")
	return a
}

// adminCommand makes c call the admin API. check checks flags and words; nil: it takes no words.
func adminCommand(c *cobra.Command, check cobra.PositionalArgs, run func(ctx context.Context, a *admin, words []string) error) *cobra.Command {
	if check == nil {
		check = words()
	}
	a := adminFlags(c)
	c.Args = check
	c.RunE = func(c *cobra.Command, words []string) error {
		a.out, a.errs = c.OutOrStdout(), c.ErrOrStderr()
		if err := a.open(); err != nil {
			return err
		}
		return run(c.Context(), a, words)
	}
	return c
}

func fileFlags(c *cobra.Command, names ...string) {
	for _, name := range names {
		if err := c.MarkFlagFilename(name); err != nil {
			panic(err) // there is no such flag
		}
	}
}

func (a *admin) open() error {
	if a.timeout <= 0 {
		return errUsage{fmt.Errorf("--timeout %v: want some time, such as 5s", a.timeout)}
	}
	if err := a.findBase(); err != nil {
		return errUsage{err}
	}
	if (a.cert == "") != (a.keyFile == "") {
		return errUsage{errors.New("--cert and --key-file go together")}
	}
	secrets, err := a.tls()
	switch {
	case err != nil:
		return err
	case secrets != nil && a.base.Scheme != "https":
		return errUsage{errors.New("--ca, --cert and --key-file are for an --admin that begins with https")}
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
		fmt.Fprintf(a.errs, "stint: warning: the token is sent to %s over http, unencrypted: set tls at the server and use --admin https://..., or reach it by ssh -L or kubectl port-forward\n", plain(a.base.Host))
	}
	return nil
}

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
