package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

func healthcheckCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "healthcheck", Short: "ask an instance whether it runs, for containers without curl",
		Long: `Asks an instance on this machine whether it runs, prints its answer in one line, and exits with 1 if
there is no answer or a bad one. It finds the address as the instance does: in the file, the variables
and the flags. Give it the same ones as "stint serve". It asks probe_listen, else check_listen, else
the HTTP port of Envoy's service. Rules are not read, so errors in them do not matter.

It asks /healthz: does the process run? With --ready, it asks /readyz: may load balancers send
requests? Do not restart an instance that is not ready: it may only be waiting for its store.

With --url, it asks there: an instance on another machine, or a Service of Kubernetes. With https, it
verifies no certificate. With --wait, it asks again until the answer is good or the time is over.`,
		Example: `  stint healthcheck --config /etc/stint/stint.yaml
  stint healthcheck --ready --url http://127.0.0.1:8082
  stint healthcheck --ready --url http://stint.default:8083 --wait 1m`,
		Args: words(),
	}
	h := healthcheck{choice: choice{flags: c.Flags()}}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&h.config, "config", "", "read settings from `FILE`, or from a directory of such files")
	addSettingFlags(f, "check-listen", "probe-listen")
	f.BoolVar(&h.asEnvoy, "envoy", false, "ask an instance of \"stint envoy\": also read the variables of envoyproxy/ratelimit")
	f.StringVar(&h.url, "url", "", "ask at `URL`, such as http://127.0.0.1:8082, and read no settings")
	f.BoolVar(&h.ready, "ready", false, "ask whether load balancers may send requests")
	f.DurationVar(&h.timeout, "timeout", 3*time.Second, "how long an answer may take")
	f.DurationVar(&h.wait, "wait", 0, "ask again for up to `DURATION`, until the answer is good (default: ask once)")
	fileFlags(c, "config")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if h.timeout <= 0 {
			return errUsage{fmt.Errorf("--timeout %v: want some time, such as 3s", h.timeout)}
		}
		if h.wait < 0 {
			return errUsage{fmt.Errorf("--wait %v: want some time, such as 1m", h.wait)}
		}
		return h.run(c.Context(), os.Environ(), c.OutOrStdout())
	}
	return c
}

type healthcheck struct {
	choice
	url     string
	ready   bool
	timeout time.Duration // for one answer
	wait    time.Duration // while which it asks again; 0: it asks once
}

// askAgain is how long to wait after an answer that is not good.
const askAgain = 500 * time.Millisecond

func (h *healthcheck) run(ctx context.Context, environ []string, out io.Writer) error {
	to, err := h.target(environ)
	if err != nil {
		return err
	}
	end := time.Now().Add(h.wait)
	said, err := h.askOnce(ctx, to)
	for err != nil && time.Until(end) > 0 {
		select {
		case <-ctx.Done():
			return err
		case <-time.After(min(askAgain, time.Until(end))): // so that the last answer is of the end
		}
		said, err = h.askOnce(ctx, to)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %s\n", to, said)
	return err
}

// askOnce returns the answer, if it is a good one.
func (h *healthcheck) askOnce(ctx context.Context, to *url.URL) (said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	status, said, err := ask(ctx, to)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", fmt.Errorf("%s: no answer within %v", to, h.timeout)
	case isPlain(err):
		return "", fmt.Errorf("%s: there is no TLS: ask http://%s", to, to.Host)
	case err != nil:
		return "", fmt.Errorf("%s: %w", to, err)
	case status != http.StatusOK:
		return "", fmt.Errorf("%s answers %d: %s", to, status, said)
	}
	return said, nil
}

// isPlain reports whether err is that of TLS with a server that has none.
func isPlain(err error) bool {
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok
}

// target is what to ask.
func (h *healthcheck) target(environ []string) (*url.URL, error) {
	path := "/healthz"
	if h.ready {
		path = "/readyz"
	}
	if h.url != "" {
		to, err := url.Parse(h.url)
		if err == nil && to.User != nil {
			return nil, errUsage{errors.New("--url: a URL with a user is not taken: probes need no password")}
		}
		if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" || strings.Trim(to.Path, "/") != "" || to.RawQuery != "" || to.Fragment != "" {
			return nil, errUsage{fmt.Errorf("--url %.200q: want a URL without a path, such as http://127.0.0.1:8082", h.url)}
		}
		return to.JoinPath(path), nil
	}
	s, err := h.settings(environ)
	if err != nil {
		return nil, err
	}
	// probe_listen is for probes: it is open to all and asks for no certificate. It goes first.
	scheme, address, name := "http", s.ProbeListen, "probe_listen"
	switch {
	case s.ProbeListen != config.Off:
	case s.CheckListen != config.Off:
		address, name = s.CheckListen, "check_listen"
		if s.CheckTLS != nil {
			scheme = "https"
		}
		if s.CheckTLS.AsksForCertificate() {
			return nil, errors.New("check_tls asks for a certificate, and a probe has none: set probe_listen")
		}
	case s.Envoy != nil && s.Envoy.HTTPListen != config.Off && s.Envoy.HTTPListen != "":
		address, name, path = s.Envoy.HTTPListen, "envoy.http_listen", "/healthcheck" // of both kinds, as Envoy's service has it
	default:
		return nil, errors.New("nothing to ask: probe_listen and check_listen are off; --url URL names another address")
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if port == "0" {
		return nil, fmt.Errorf("%s %s: the system chose the port; --url URL names it", name, address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // an image without /etc/hosts has no localhost
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port), Path: path}, nil
}

// settings are those of the instance.
func (h *healthcheck) settings(environ []string) (config.Settings, error) {
	if err := h.readGiven(environ); err != nil {
		return config.Settings{}, err
	}
	var files []rules.File
	if h.config != "" {
		var err error
		if files, err = rules.Read(h.config); err != nil {
			return config.Settings{}, err
		}
	}
	return (&config.Source{Files: orEmpty(files), Given: h.given, CheckStore: redislimit.CheckAddress}).ReadSettings()
}

// ask returns the answer to GET, and of its body the first line.
func ask(ctx context.Context, to *url.URL) (status int, said string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return 0, "", err
	}
	transport := &http.Transport{
		// The certificate is for the name by which others call this machine, and may have run out,
		// which is for alerts to tell: to start another process would not renew it.
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}
	resp, err := transport.RoundTrip(req) // a redirect is no answer of ours
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	said, _, _ = strings.Cut(strings.TrimSpace(string(body)), "\n")
	return resp.StatusCode, plain(said), err
}
