package expr

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// keyText stops soon after most bytes. Not ok: the value, or a part, is null.
func keyText(v ref.Val, most int) (key string, ok bool, err error) {
	if list, isList := v.(traits.Lister); isList {
		return joinedParts(list, most)
	}
	return keyPart(v)
}

// joinedParts ends each part with a NUL byte, which no part contains.
func joinedParts(list traits.Lister, most int) (key string, ok bool, err error) {
	var b strings.Builder
	size := list.Size().(types.Int)
	for i := types.Int(0); i < size; i++ {
		part, ok, err := keyPart(list.Get(i))
		if !ok || err != nil {
			return "", false, err
		}
		b.WriteString(part)
		b.WriteByte(0)
		if b.Len() > most {
			break // too long already
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
			return "", false, fmt.Errorf("the number %v cannot be a key", float64(v))
		}
		part = strconv.FormatFloat(float64(v)+0, 'f', -1, 64) // +0: -0 is 0
	case types.Null:
		return "", false, nil
	default:
		return "", false, fmt.Errorf("a %s cannot be a key", v.Type().TypeName())
	}
	if strings.IndexByte(part, 0) >= 0 {
		return "", false, errors.New("it contains a NUL byte")
	}
	return part, true, nil
}
