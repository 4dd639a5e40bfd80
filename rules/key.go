package rules

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/stintdev/stint"
)

// ClientKey is client.ip as a key sees it: an IPv4 address itself, an IPv6 address
// by its first IPv6Prefix bits. It is empty where a is invalid.
func (s *Set) ClientKey(a netip.Addr) string {
	a = plainAddr(a)
	switch {
	case !a.IsValid():
		return ""
	case a.Is4():
		return a.String()
	}
	p, err := a.Prefix(s.IPv6Prefix)
	if err != nil {
		return a.String() // the prefix of a Set made by hand
	}
	return p.String()
}

// DefaultKey is the key of a rule that gives none: what is done, and by whom. What is
// done is the operation or, where that is unknown, the name of the gateway's route.
// One of the parts may be unknown, and is empty then; without both, the rule does not
// apply.
const DefaultKey = "[operation, client.ip]"

func (s *scope) defaultKey() (key string, ok bool, err error) {
	what, who := s.in.Operation, s.set.ClientKey(s.client)
	if what == "" && s.in.Request != nil {
		what = s.in.Request.Route
	}
	if what == "" && who == "" {
		return "", false, nil
	}
	joined, err := JoinKey(what, who)
	return string(joined), err == nil, err
}

// keyOf is the text of a key, as doc.go describes it; ok is false where the value
// is null or has a null part, and the rule does not apply.
func keyOf(v ref.Val) (key string, ok bool, err error) {
	if list, isList := v.(traits.Lister); isList {
		key, ok, err = joined(list)
	} else {
		key, ok, err = keyPart(v)
	}
	if ok && err == nil {
		err = checkKey(key)
	}
	return key, ok, err
}

// joined ends each part with a NUL byte, which no part contains: the parts can be
// told from the whole, and a list of one part differs from a string.
func joined(list traits.Lister) (key string, ok bool, err error) {
	var b strings.Builder
	size := list.Size().(types.Int)
	for i := types.Int(0); i < size; i++ {
		part, ok, err := keyPart(list.Get(i))
		if !ok || err != nil {
			return "", false, err
		}
		b.WriteString(part)
		b.WriteByte(0)
		if b.Len() > stint.MaxKey {
			break // too long however it goes on
		}
	}
	if types.Int(b.Len()) == size {
		return "", true, nil // nothing but NULs: as empty as ""
	}
	return b.String(), true, nil
}

func keyPart(v ref.Val) (part string, ok bool, err error) {
	switch v := v.(type) {
	case types.String:
		part = string(v)
	case types.Int:
		part = strconv.FormatInt(int64(v), 10)
	case types.Uint:
		part = strconv.FormatUint(uint64(v), 10)
	case types.Bool:
		part = strconv.FormatBool(bool(v))
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return "", false, fmt.Errorf("the number %v cannot be counted by", float64(v))
		}
		part = strconv.FormatFloat(float64(v)+0, 'f', -1, 64) // +0: -0 is 0
	case types.Null:
		return "", false, nil
	default:
		return "", false, fmt.Errorf("a %s cannot be counted by", v.Type().TypeName())
	}
	if strings.IndexByte(part, 0) >= 0 {
		return "", false, errors.New("it contains a NUL byte")
	}
	return part, true, nil
}

func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("it is empty")
	case len(key) > stint.MaxKey:
		return fmt.Errorf("it is longer than %d bytes", stint.MaxKey)
	case !utf8.ValidString(key):
		return errors.New("it is not valid UTF-8")
	}
	return nil
}
