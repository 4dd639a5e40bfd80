package server

import (
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/rules"
)

// Secret says where the text of a secret is found, by which expressions make keys with
// hmac. It does not hold the text.
type Secret struct {
	// Name is what expressions say after "secrets.".
	Name string
	// File is read again when it changes; line ends at its end do not count.
	File string
}

// readSecrets makes a reader of a mapping of names of secrets.
func readSecrets(r *yamlnode.Reader, to *[]Secret) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if n.Value != "" { // which may be a secret: it must not be told
			r.Report(n, "want a mapping of names, such as secrets: {pepper: {file: /etc/stint/pepper}}")
			return
		}
		r.Named(n, func(name, value *yamlnode.Node) {
			if value.Value != "" { // likewise
				r.Report(value, "want a mapping with file, such as {file: /etc/stint/pepper}")
				return
			}
			s := Secret{Name: name.Value}
			fields := r.Mapping(value, yamlnode.Fields{"file": r.Text(&s.File)})
			if !rules.IsSecretName(s.Name) {
				r.Report(name, "name %.60q of a secret: must be 1 to 64 letters, digits and _, and not begin with a digit", s.Name)
			}
			if fields != nil && s.File == "" {
				r.Report(value, "a secret needs a file: where its text is found")
			}
			*to = append(*to, s)
		})
	}
}

// KnownSecrets are the settings' secrets by name, none of which was read: to see
// whether rules name others.
func (s *Settings) KnownSecrets() *rules.Secrets {
	names := make([]string, len(s.Secrets))
	for i := range s.Secrets {
		names[i] = s.Secrets[i].Name
	}
	return rules.NewSecrets(names...)
}
