package server

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// keepUpgrade leaves in r the upgrade that may pass, or none: the first protocol that
// the client offers and the settings name. Without one, the request goes on in
// HTTP/1.1, as RFC 9110 has it: clients that offer h2c with their first request, as
// curl --http2 and Java's HttpClient do, are served.
//
// After an upgrade, what passes is bytes to the gateway. So no protocol may pass in
// which a client could ask for more.
func (t *transport) keepUpgrade(r *http.Request) {
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

// wrongSwitch says what is wrong with a response that switches protocols; nil: nothing
// is. An upstream may switch to what it was offered.
func wrongSwitch(r *http.Response) error {
	offered, to := r.Request.Header.Get("Upgrade"), r.Header["Upgrade"]
	switch {
	case offered == "":
		return errors.New("it switched protocols, and was offered none")
	case len(to) != 1 || !strings.EqualFold(to[0], offered):
		return fmt.Errorf("it switched to %.60q, and was offered %s", to, offered)
	}
	return nil
}
