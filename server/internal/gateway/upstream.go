package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/watch"
)

// proxy is a handler that forwards requests to route's upstream.
func (g *Gateway) proxy(route *config.Route) http.Handler {
	t := g.Transports[kindOf(route, g.Settings)]
	proxy := &httputil.ReverseProxy{
		Transport: t,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = exchangeOf(p.In).out
			p.Out.Host = p.In.Host
			p.Out.Trailer = p.In.Trailer // the same map; it is filled when the body ends
			// The client gets 100 Continue when its body is read. An upstream that answers without reading
			// the body would get no body, and may wait for it. While the body is unread, net/http does not
			// notice that the client has left.
			p.Out.Header.Del("Expect")
			p.Out.Body = exchangeOf(p.In).closable(p.Out.Body)
			g.setForwarded(p)
			g.Watch.Tracing.Pass(p.In.Context(), p.Out.Header)
		},
		ModifyResponse: func(r *http.Response) error {
			x := exchangeOf(r.Request)
			switching := r.StatusCode == http.StatusSwitchingProtocols
			if switching {
				if err := wrongSwitch(r); err != nil {
					return err
				}
				if !x.timer.stop() {
					return errResponseTimeout
				}
			} else if x.timer != nil {
				r.Body = x.timer.watch(r, g.Watch.Sampled)
			}
			g.Watch.Tracing.Answered(r)
			g.endGRPC(r)
			x.status = r.StatusCode
			g.responded(r.Request.Context(), x, r.StatusCode)
			x.answersEarly(r)
			if switching {
				x.leave() // it may last for days
				x.upgraded = true
				g.CutOff.Upgraded.Add(1)
			}
			x.setHeaders(r.Header)
			g.CORS.Passed(x.route, r.Request, r.Header, x.headers)
			if _, ok := r.Header["Content-Type"]; !ok {
				x.body.writer.Header()["Content-Type"] = nil // or net/http would guess one from the body
			}
			return nil
		},
		ErrorHandler: g.upstreamFailed,
		BufferPool:   door.Buffers{},
		ErrorLog:     g.ErrorLog,
	}
	_, timeout := g.Settings.Timeouts(route)
	proxied := t.asksProxy(&url.URL{Scheme: route.Upstream.Scheme, Host: route.Upstream.Host})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		var err error
		if x.out, err = outgoing(route, &x.target, proxied); err != nil {
			httplimit.Problem(w, r, http.StatusBadRequest, err.Error())
			return
		}
		t.keepUpgrade(r)
		x.takeHeaders(w.Header())
		if ctx, span := g.Watch.Tracing.StartUpstream(r.Context(), route.Upstream.Host, r); span != nil {
			defer span.End()
			r = r.WithContext(ctx)
		}
		if timeout > 0 {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			x.timer = newResponseTimer(timeout, cancel)
			defer x.timer.stop()
			r = r.WithContext(ctx)
		}
		proxy.ServeHTTP(forwardsInterim(g.keepPace(route, x, w, r), r), r)
	})
}

// setForwarded sets the headers that describe where the request comes from. It removes such headers of an
// untrusted client, also under names that upstreams take for them, such as X_Forwarded_For.
func (g *Gateway) setForwarded(p *httputil.ProxyRequest) {
	clients := g.Clients()
	httpfield.DropTwins(p.Out.Header, "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", http.CanonicalHeaderKey(g.Settings.ClientHeader))
	if !clients.Believes(p.In) {
		if g.Settings.ClientHeader != "" {
			p.Out.Header.Del(g.Settings.ClientHeader)
		}
		p.SetXForwarded()
		return
	}
	p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	p.SetXForwarded()
	for _, name := range [...]string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if lines := p.In.Header[name]; lines != nil {
			p.Out.Header[name] = lines
		}
	}
}

const notInTime = "upstream did not answer in time"

func (g *Gateway) upstreamFailed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r)
	g.Watch.Tracing.Failed(r.Context())
	x.setHeaders(w.Header())
	var op *net.OpError
	x.unsent = errors.As(err, &op) && op.Op == "dial"
	gone := r.Context().Err() != nil // net/http reports this also for a client that was too slow
	switch {
	case x.upload != nil && x.upload.pace.isExpired():
		x.clientFailed = true
		if x.http1 {
			w.Header()["Connection"] = []string{"close"}
		}
		httplimit.Problem(w, r, http.StatusRequestTimeout, "The request's body did not arrive in time.")
		return
	case x.timer.isOver():
		logUpstream(g.Watch.Sampled, r, notInTime, errResponseTimeout)
		httplimit.Problem(w, r, http.StatusGatewayTimeout, "The upstream did not answer in time.")
		return
	case gone && g.CutOff.Begun.Load():
		httplimit.Problem(w, r, http.StatusGatewayTimeout, "This server is stopping, and the upstream has not answered.")
		return
	case x.upload != nil && x.upload.broken.Load():
		x.clientFailed = true
		httplimit.Problem(w, r, http.StatusBadRequest, "The request's body is malformed or ends too early.")
		return
	case gone: // or it has closed its half of the connection, and still reads
		x.clientFailed = true
		httplimit.Problem(w, r, http.StatusBadRequest, "The connection was closed before the upstream had answered.")
		return
	}
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		logUpstream(g.Watch.Sampled, r, notInTime, err)
		httplimit.Problem(w, r, http.StatusGatewayTimeout, "The upstream did not answer in time.")
	default:
		logUpstream(g.Watch.Sampled, r, "upstream failed", err)
		httplimit.Problem(w, r, http.StatusBadGateway, "The upstream cannot be reached.")
	}
}

// keepUpgrade leaves in r the upgrade that may pass, or none: the first protocol that the
// client offers and the settings name. Without one, the request goes on in HTTP/1.1, as in RFC
// 9110. So clients that offer h2c with their first request, such as curl --http2 and Java's
// HttpClient, are served.
//
// After an upgrade, the gateway forwards bytes. So a protocol in which a client could send more
// requests must not pass.
func (t *Transport) keepUpgrade(r *http.Request) {
	r.Header.Del("Http2-Settings")
	lines := r.Header["Upgrade"]
	if lines == nil {
		return
	}
	r.Header.Del("Upgrade")
	if t.h2c || !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade") {
		return // HTTP/2 has no upgrades
	}
	for _, line := range lines {
		for offered := range strings.SplitSeq(line, ",") {
			if i := slices.IndexFunc(t.settings.Upgrades, func(name string) bool { return strings.EqualFold(name, strings.TrimSpace(offered)) }); i >= 0 {
				r.Header["Upgrade"] = []string{t.settings.Upgrades[i]}
				return
			}
		}
	}
}

// wrongSwitch returns an error if a response switches protocols wrongly. An upstream may switch to the
// protocol that it was offered.
func wrongSwitch(r *http.Response) error {
	offered, to := r.Request.Header.Get("Upgrade"), r.Header["Upgrade"]
	switch {
	case offered == "":
		return errors.New("it switched protocols, but was offered none")
	case len(to) != 1 || !strings.EqualFold(to[0], offered):
		return fmt.Errorf("it switched to %.60q, but was offered %s", to, offered)
	}
	return nil
}

// logUpstream logs what is wrong with the upstream of r.
func logUpstream(l *watch.Sampled, r *http.Request, what string, err error) {
	x := exchangeOf(r)
	route := x.route.String()
	l.Log(slog.LevelWarn, what+" "+route, what, "route", route, "host", watch.Shown(r.Host), "path", watch.Shown(x.target.RawPath), "error", err)
}
