package config

import (
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// TLSFiles names the certificate that a listener shows, and the authorities of clients, as
// PEM files. They are read again when they change; see Server.Run.
type TLSFiles struct {
	// Cert is the certificate, followed by intermediate ones up to the authority
	// that clients know. Key is its private key.
	Cert, Key string
	// ClientCA holds authorities: a client must show a certificate that one of them
	// signed. Empty: clients need none.
	ClientCA string
}

// AsksForCertificate reports whether clients must show a certificate. f may be nil.
func (f *TLSFiles) AsksForCertificate() bool { return f != nil && f.ClientCA != "" }

// Paths returns the names of the files: Cert, Key and, if it is given, ClientCA.
func (f *TLSFiles) Paths() []string {
	if f.ClientCA == "" {
		return []string{f.Cert, f.Key}
	}
	return []string{f.Cert, f.Key, f.ClientCA}
}

// readTLS is the section tls of a listener.
func readTLS(r *yamlnode.Reader, to **TLSFiles) schema.Value {
	return schema.Optional(r, to, func(f *TLSFiles) schema.Rows {
		return schema.Rows{
			{Name: "cert", Value: schema.Text(r, &f.Cert, "file").Matching(schema.Something), Required: true, Example: "/etc/stint/tls.crt", Reread: true,
				Says: "PEM file with the certificate, then intermediate ones."},
			{Name: "key", Value: schema.Text(r, &f.Key, "file").Matching(schema.Something), Required: true, Example: "/etc/stint/tls.key", Reread: true,
				Says: "File with its private key."},
			{Name: "client_ca", Value: schema.Text(r, &f.ClientCA, "file"), Example: "/etc/stint/clients.pem", Reread: true,
				Says: "File with authorities: clients must show a certificate that one of them signed."},
		}
	}, func(f *TLSFiles, n *yamlnode.Node, _ map[string]*yamlnode.Node) {
		switch {
		case (f.Cert == "") != (f.Key == ""):
			r.Report(n, "cert and key go together")
		case f.Cert == "" && f.ClientCA != "":
			r.Report(n, "client_ca needs cert and key, too")
		case f.Cert == "":
			r.Report(n, "tls needs cert and key: files of a certificate and its private key")
		}
	})
}

// Secret names the file of a secret, with which expressions make keys by hmac. It does not contain the
// secret.
type Secret struct {
	// Name is what expressions say after "secrets.".
	Name string
	// File is read again when it changes; line ends at its end do not count.
	File string
}

// readSecrets is a mapping of names of secrets.
func readSecrets(r *yamlnode.Reader, to *[]Secret) schema.Value {
	rowsOf := func(s *Secret) schema.Rows {
		return schema.Rows{{Name: "file", Value: schema.Text(r, &s.File, "file").Matching(schema.Something), Required: true, Example: "/etc/stint/pepper", Reread: true,
			Says: "File with the secret. Line ends at its end are dropped."}}
	}
	item := schema.Shape{Kind: schema.KindMapping, Rows: func() schema.Rows { return rowsOf(new(Secret)) }}
	return schema.Custom(schema.Shape{Kind: schema.KindNames, What: "name", Item: &item}, func(n *yamlnode.Node) {
		if n.Value != "" { // it may be a secret, which must not be shown
			r.Report(n, "want a mapping of names, such as secrets: {pepper: {file: /etc/stint/pepper}}")
			return
		}
		r.Named(n, func(name, value *yamlnode.Node) {
			if value.Value != "" { // likewise
				r.Report(value, "want a mapping with file, such as {file: /etc/stint/pepper}")
				return
			}
			s := Secret{Name: name.Value}
			fields := r.Mapping(value, rowsOf(&s).Fields())
			if !rules.IsSecretName(s.Name) {
				r.Report(name, "name %.60q of a secret: must be 1 to 64 letters, digits and _, and not begin with a digit", s.Name)
			}
			if fields != nil && s.File == "" {
				r.Report(value, "a secret needs a file with its text")
			}
			*to = append(*to, s)
		})
	})
}

// KnownSecrets returns the names of the settings' secrets, without reading the files, so
// that the names in rules can be checked.
func (s *Settings) KnownSecrets() *rules.Secrets {
	names := make([]string, len(s.Secrets))
	for i := range s.Secrets {
		names[i] = s.Secrets[i].Name
	}
	return rules.NewSecrets(names...)
}
