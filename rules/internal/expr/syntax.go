package rules

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// operatorsAndTexts finds the beginnings of strings, comments, CEL's operators and those
// of other languages, the longest first, so that none is taken for a part of another.
var operatorsAndTexts = regexp.MustCompile(`(?s)"""|'''|"|'|//[^\n]*` +
	`|===|!==|==|!=|<=|>=|=>|=<|<>|=|&&|\|\||&|\||\b(?:and|or|not|AND|OR|NOT)\b`)

// native is what CEL has in place of an operator of other languages.
var native = map[string]string{
	"=": "==", "===": "==", "!==": "!=", "<>": "!=", "=>": ">=", "=<": "<=", "&": "&&", "|": "||",
	"and": "&&", "or": "||", "not": "!",
}

// foreign finds the operators of other languages in source, outside of its strings.
func foreign(source string) []problem {
	var problems []problem
	for at := 0; at < len(source); {
		found := operatorsAndTexts.FindStringIndex(source[at:])
		if found == nil {
			break
		}
		start, end := at+found[0], at+found[1]
		at = end
		switch word := source[start:end]; {
		case strings.HasPrefix(word, `"`), strings.HasPrefix(word, "'"):
			at = endOfString(source, start, word)
		case start > 0 && source[start-1] == '.': // a field of that name
		case native[strings.ToLower(word)] != "":
			problems = append(problems, problem{
				utf8.RuneCountInString(source[:start]),
				fmt.Sprintf("%q is no operator here: write %s", word, native[strings.ToLower(word)]),
			})
		}
	}
	return problems
}

// endOfString is where the string ends that begins at start with this quote.
func endOfString(source string, start int, quote string) int {
	raw := start > 0 && strings.ContainsRune("rR", rune(source[start-1]))
	for i := start + len(quote); i < len(source); i++ {
		if source[i] == '\\' && !raw {
			i++
		} else if strings.HasPrefix(source[i:], quote) {
			return i + len(quote)
		}
	}
	return len(source)
}
