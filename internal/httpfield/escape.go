package httpfield

import "strings"

// ParameterValue is a part of a query, decoded. Malformed escapes stay as they are.
func ParameterValue(sent string) string { return unescape(sent, ' ') }

// unescape decodes the escapes of text that are well-formed, and writes a plus sign as plus.
func unescape(text string, plus byte) string {
	i := strings.IndexByte(text, '%')
	if plus != '+' && i < 0 {
		i = strings.IndexByte(text, '+')
	}
	if i < 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '+':
			b.WriteByte(plus)
		case c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]):
			b.WriteByte(digit(text[i+1])<<4 | digit(text[i+2]))
			i += 2
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|' ' && c|' ' <= 'f' }

// digit is the value of a hexadecimal digit.
func digit(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c | ' ' - 'a' + 10
}
