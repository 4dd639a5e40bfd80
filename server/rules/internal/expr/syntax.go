package expr

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/cel"

	"github.com/stintdev/stint/internal/spelling"
)

// explain puts CEL's errors in our words. An operator of another language explains all errors.
func explain(source string, issues []*cel.Error, when phase) []Problem {
	return explainIn(source, issues, when.unknownName)
}

// explainIn is explain for a language in which unknown explains unknown names.
func explainIn(source string, issues []*cel.Error, unknown func(name string, source []rune, offset int) Problem) []Problem {
	if len(issues) > 0 && strings.Contains(issues[0].Message, "Syntax error") {
		if problems := foreign(source); len(problems) > 0 {
			return problems
		}
	}
	characters, lines := []rune(source), strings.SplitAfter(source, "\n")
	problems := make([]Problem, 0, len(issues))
	for _, issue := range issues {
		p := Problem{Offset: max(0, issue.Location.Column())}
		for _, line := range lines[:min(len(lines), max(0, issue.Location.Line()-1))] {
			p.Offset += utf8.RuneCountInString(line)
		}
		if name, ok := strings.CutPrefix(issue.Message, "undeclared reference to '"); ok {
			name, _, _ = strings.Cut(name, "'")
			p = unknown(name, characters, p.Offset)
		} else {
			p.Text = plainSyntax(issue.Message)
		}
		p.Text = Clip(p.Text)
		problems = append(problems, p)
	}
	return problems
}

func plainSyntax(message string) string {
	message, _, _ = strings.Cut(message, " expecting ")
	message = strings.Replace(message, "mismatched input '<EOF>'", "the expression ends too soon", 1)
	return strings.Replace(message, "Syntax error", "syntax error", 1)
}

// unknownName is the problem with a name. CEL gives the place of a function's parenthesis, or of
// a variable's beginning or last known dot.
func (p phase) unknownName(name string, source []rune, offset int) Problem {
	if offset < len(source) && source[offset] == '(' {
		return Problem{offset, fmt.Sprintf("unknown function %q", name)}
	}
	if start := offset - strings.LastIndex(name, "."); start < offset && start >= 0 &&
		strings.HasPrefix(string(source[start:]), name) {
		offset = start
	}
	end := offset
	for end < len(source) && (source[end] == '_' || source[end] == '.' || unicode.IsLetter(source[end]) || unicode.IsDigit(source[end])) {
		end++
	}
	full := strings.TrimRight(string(source[min(offset, end):end]), ".")
	if !strings.HasPrefix(full, name) {
		full = name
	}
	if isVariable(full) {
		return Problem{offset, "has() tests the fields of maps, such as those of request.headers or attrs; " + full + " is none"}
	}
	text := fmt.Sprintf("unknown variable %q", full) + spelling.Hint(full, p.variables())
	text += " (variables: " + strings.Join(p.variables(), ", ")
	if full == name && !strings.Contains(name, ".") {
		text += `; text is quoted: '"` + name + `"'`
	}
	return Problem{offset, text + ")"}
}

// operatorsAndTexts finds strings, comments and operators, the longest first.
var operatorsAndTexts = regexp.MustCompile(`(?s)"""|'''|"|'|//[^\n]*` +
	`|===|!==|==|!=|<=|>=|=>|=<|<>|=|&&|\|\||&|\||\b(?:and|or|not|AND|OR|NOT)\b`)

// native has CEL's replacements for operators of other languages.
var native = map[string]string{
	"=": "==", "===": "==", "!==": "!=", "<>": "!=", "=>": ">=", "=<": "<=", "&": "&&", "|": "||",
	"and": "&&", "or": "||", "not": "!",
}

func foreign(source string) []Problem {
	var problems []Problem
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
			problems = append(problems, Problem{
				utf8.RuneCountInString(source[:start]),
				fmt.Sprintf("%q is not an operator here: write %s", word, native[strings.ToLower(word)]),
			})
		}
	}
	return problems
}

// endOfString is the end of the string that begins at start with this quote.
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
