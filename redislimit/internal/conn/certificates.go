package conn

import (
	"context"
	"crypto/x509"
	"time"
)

const (
	// soonExpired is how long before a certificate expires a warning is logged.
	soonExpired = 14 * 24 * time.Hour
	warnEvery   = 24 * time.Hour
)

// warnOfExpiry logs which certificates expire soon. It connects again first, because servers may
// have new ones.
func (c *Conn) warnOfExpiry(ctx context.Context) {
	if time.Since(c.warnedAt) < warnEvery {
		return
	}
	again := !c.warnedAt.IsZero()
	c.warnedAt = time.Now()
	if shown := earliest(c.engine.Load().sockets.shown()); again && !shown.IsZero() && time.Until(shown) < soonExpired {
		if err := c.replace(ctx, c.used); err != nil {
			c.complain(err)
		}
	}
	for kind, cs := range c.engine.Load().certificates() {
		seen := map[string]bool{} // servers may share a certificate
		for _, cert := range cs {
			left := time.Until(cert.NotAfter)
			if left >= soonExpired || seen[string(cert.Raw)] {
				continue
			}
			seen[string(cert.Raw)] = true
			text := "stint: a certificate of the store's connections expires soon"
			if left <= 0 {
				text = "stint: a certificate of the store's connections has expired"
			}
			c.logger().Warn(text, "which", kind, "subject", cert.Subject.String(), "expires", cert.NotAfter)
		}
	}
}

// Certificates returns when the earliest certificate of each kind expires: "client", "ca" and
// "server". Kinds without one are left out.
func (c *Conn) Certificates() map[string]time.Time {
	all := map[string]time.Time{}
	if e := c.engine.Load(); e != nil {
		for kind, cs := range e.certificates() {
			if len(cs) > 0 {
				all[kind] = earliest(cs)
			}
		}
	}
	return all
}

func (e *engine) certificates() map[string][]*x509.Certificate {
	all := map[string][]*x509.Certificate{"ca": e.have.cas, "server": e.sockets.shown()}
	if e.have.leaf != nil {
		all["client"] = []*x509.Certificate{e.have.leaf}
	}
	return all
}

func earliest(cs []*x509.Certificate) (at time.Time) {
	for _, c := range cs {
		if at.IsZero() || c.NotAfter.Before(at) {
			at = c.NotAfter
		}
	}
	return at
}
