package store

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/stintdev/stint"
)

// A row's key is a letter, the counted subject, and the ID of the limit or the name of the penalty:
// "c/user:42/t1m:api", "p/user:42/login". Both are escaped as in a URL's path. A subject longer than
// longSubject is "#" and a hash.

const longSubject = 64

func countKey(subject string, l *stint.Limit) string {
	return "c/" + subjectText(subject) + "/" + url.PathEscape(l.ID())
}

const records = "p/"

func recordKey(subject string, p *stint.Penalty) string {
	return records + subjectText(subject) + "/" + url.PathEscape(p.Spec().Name)
}

func subjectText(subject string) string {
	if len(subject) > longSubject {
		sum := sha256.Sum256([]byte(subject))
		return "#" + base64.RawURLEncoding.EncodeToString(sum[:24])
	}
	return url.PathEscape(subject)
}

// parseRecordKey is the inverse of recordKey; a hashed subject remains its hash. It is not ok if row is
// not the key of a record.
func parseRecordKey(row string) (subject string, hashed bool, penalty string, ok bool) {
	rest, ok := strings.CutPrefix(row, records)
	subject, penalty, separated := strings.Cut(rest, "/")
	if !ok || !separated {
		return "", false, "", false
	}
	penalty, err := url.PathUnescape(penalty)
	if hashed = strings.HasPrefix(subject, "#"); !hashed && err == nil {
		subject, err = url.PathUnescape(subject)
	}
	return subject, hashed, penalty, err == nil
}
