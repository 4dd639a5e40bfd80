package server

import (
	"github.com/stintdev/stint/internal/yamlnode"
)

// TLSFiles names what a listener shows and asks for, in files of PEM. They are read
// again when they change; see Server.Run.
type TLSFiles struct {
	// Cert is the certificate, followed by those between it and the authority that
	// clients know. Key is its private key.
	Cert, Key string
	// ClientCA holds authorities: a client must show a certificate that one of them
	// signed. Empty: clients need none.
	ClientCA string
}

// paths are those of the files there are: Cert, Key and perhaps ClientCA.
func (f *TLSFiles) paths() []string {
	if f.ClientCA == "" {
		return []string{f.Cert, f.Key}
	}
	return []string{f.Cert, f.Key, f.ClientCA}
}

// readTLS makes a reader of a listener's "tls".
func readTLS(r *yamlnode.Reader, to **TLSFiles) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		f := new(TLSFiles)
		if r.Mapping(n, yamlnode.Fields{"cert": r.Text(&f.Cert), "key": r.Text(&f.Key), "client_ca": r.Text(&f.ClientCA)}) == nil {
			return
		}
		*to = f
		switch {
		case (f.Cert == "") != (f.Key == ""):
			r.Report(n, "cert and key go together")
		case f.Cert == "" && f.ClientCA != "":
			r.Report(n, "client_ca needs cert and key, too")
		case f.Cert == "":
			r.Report(n, "tls needs cert and key: files of a certificate and its private key")
		}
	}
}
