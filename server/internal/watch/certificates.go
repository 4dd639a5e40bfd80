package watch

import (
	"crypto/x509"
	"time"
)

// soonExpired is how long before the expiry of a certificate there is a warning.
const soonExpired = 14 * 24 * time.Hour

// Certificate sets the expiry metric of leaf, and warns if leaf, or an authority, which the settings call ca,
// expires soon. leaf may be nil.
func (w *Watch) Certificate(listener, ca string, leaf *x509.Certificate, cas []*x509.Certificate) {
	if leaf != nil {
		w.Metrics.CertificateExpiry.WithLabelValues(listener).Set(float64(leaf.NotAfter.Unix()))
		w.warnOfExpiry(listener, "certificate", leaf)
	}
	for _, x := range cas {
		w.warnOfExpiry(listener, ca, x)
	}
}

func (w *Watch) warnOfExpiry(listener, which string, x *x509.Certificate) {
	left := time.Until(x.NotAfter)
	if left >= soonExpired {
		return
	}
	text := "a certificate expires soon"
	if left <= 0 {
		text = "a certificate has expired"
	}
	w.Log.Warn(text, "listener", listener, "which", which, "subject", x.Subject.String(), "expires", x.NotAfter)
}
