package redislimit

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/stintdev/stint/redislimit/internal/conn"
)

// longSubject is the longest subject, in bytes, that is not hashed; hashing saves memory of
// Redis.
const longSubject = 64

// tag returns the text between the braces of a key. Redis hashes it up to the first "}"; all
// keys of a subject share it.
func tag(subject string) string { return string(appendTag(nil, subject)) }

func appendTag(b []byte, subject string) []byte {
	if len(subject) > longSubject {
		sum := sha256.Sum256([]byte(subject))
		return base64.RawURLEncoding.AppendEncode(append(b, '#'), sum[:24])
	}
	b = strconv.AppendInt(b, int64(len(subject)), 10)
	return append(append(b, ':'), subject...)
}

func (s *Store) key(subject, id string) string { return string(s.appendKey(nil, subject, id)) }

func (s *Store) appendKey(b []byte, subject, id string) []byte {
	b = append(append(b, s.namespace...), ":{"...)
	return append(append(appendTag(b, subject), '}'), id...)
}

// parse splits a key; a hashed subject is returned as its hash. Not ok: the key is not one of
// ours.
func (s *Store) parse(key string) (subject string, hashed bool, id string, ok bool) {
	rest, ok := strings.CutPrefix(key, s.namespace+":{")
	if !ok {
		return "", false, "", false
	}
	if strings.HasPrefix(rest, "#") {
		subject, id, ok = strings.Cut(rest, "}")
		return subject, true, id, ok
	}
	length, rest, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(length)
	if err != nil || n < 1 || n > longSubject || len(rest) <= n || rest[n] != '}' {
		return "", false, "", false
	}
	subject, id = rest[:n], rest[n+1:]
	return subject, false, id, key == s.key(subject, id)
}

func slot(subject string) uint16 {
	var room [longSubject + 4]byte
	return conn.Slot(appendTag(room[:0], subject))
}

func checkNamespace(n string) error {
	ok := len(n) >= 1 && len(n) <= 64
	for _, c := range n {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.:-", c))
	}
	if !ok {
		return fmt.Errorf("namespace %q: must be 1 to 64 of A–Z a–z 0–9 _ . : -", n)
	}
	return nil
}
