package server_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// forgedHold is a hold of n limits that nobody has taken.
func forgedHold(n int) string {
	b := append([]byte{1}, make([]byte, 12)...)
	rand.Read(b[1:])
	b = binary.AppendUvarint(b, 1_000_000)
	b = binary.AppendUvarint(b, uint64(n))
	for i := range n {
		key := ""
		if i == 0 {
			key = rand.Text()
		}
		limit := fmt.Sprintf("r%d: 1 in_flight", i)
		b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
		b = append(binary.AppendUvarint(b, uint64(len(limit))), limit...)
		b = append(b, 1, 0)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// One request cannot settle any number of limits, though a hold can have hundreds in few bytes.
func TestAttackSettleManyLimits(t *testing.T) {
	s := newServer(t, `rules: [{name: r, key: client.ip, limits: [1000000 per 1h]}]`)
	for _, c := range []struct {
		path          string
		holds, status int
	}{{"/v1/settle", 20, 200}, {"/v1/settle", 21, 413}, {"/v1/renew", 20, 200}, {"/v1/renew", 100, 413}} {
		list := make([]string, c.holds)
		for i := range list {
			list[i] = `{"hold":"` + forgedHold(500) + `"}`
		}
		if w := callCheck(s, c.path, "["+strings.Join(list, ",")+"]"); w.Code != c.status {
			t.Errorf("%s of %d holds: %d %.200s", c.path, c.holds, w.Code, w.Body)
		}
	}
}
