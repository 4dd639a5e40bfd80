// Package phrase has the sentences of reports, in English and in Chinese.
package phrase

import (
	"fmt"
	"strings"

	"github.com/stintdev/stint/internal/spelling"
)

// constant is an English text that stands in the code: no other package can convert a string to it. So a test
// finds all of them, and each has its Chinese text in the map chinese.
type constant string

// Phrase is a text in two languages. As JSON it is its English text. The zero Phrase is empty.
type Phrase struct {
	english constant // a format, whose verbs are all %s
	args    []any
}

// Of returns a Phrase: an English format and an argument for each of its %s. Whole numbers are spelled with commas,
// as in 1,204,331, and an argument that is a Phrase is told in the language of the whole.
func Of(english constant, args ...any) Phrase { return Phrase{english, args} }

// Plain is a text that is the same in both languages, such as a name or a number.
func Plain(text string) Phrase { return Of("%s", text) }

// Count is a number of things, as in "3 keys". thing is their singular in English, whose plural is regular.
func Count[N int | int64](n N, thing constant) Phrase { return Of("%s", count{int64(n), thing}) }

// Join is all phrases with a text between them.
func Join(between constant, all ...Phrase) Phrase { return Of("%s", list{between, all}) }

type count struct {
	n     int64
	thing constant
}

type list struct {
	between constant
	all     []Phrase
}

// String is the English text.
func (p Phrase) String() string { return p.in(english) }

// Chinese is the Chinese text.
func (p Phrase) Chinese() string { return p.in(simplifiedChinese) }

// MarshalText returns the English text.
func (p Phrase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText makes p a text that is English in both languages.
func (p *Phrase) UnmarshalText(text []byte) error {
	*p = Plain(string(text))
	return nil
}

func (p Phrase) in(l language) string {
	args := make([]any, len(p.args))
	for i, a := range p.args {
		args[i] = l.argument(a)
	}
	return fmt.Sprintf(l.text(p.english), args...)
}

// language is one of the two.
type language struct {
	text    func(constant) string
	several func(count) string
}

var (
	english = language{
		func(c constant) string { return string(c) },
		func(c count) string { return spelling.SeveralGrouped(c.n, string(c.thing)) },
	}
	simplifiedChinese = language{
		func(c constant) string { return chinese[c] },
		func(c count) string { return spelling.Grouped(c.n) + " " + chinese[c.thing] },
	}
)

func (l language) argument(arg any) any {
	switch a := arg.(type) {
	case Phrase:
		return a.in(l)
	case count:
		return l.several(a)
	case list:
		texts := make([]string, len(a.all))
		for i, p := range a.all {
			texts[i] = p.in(l)
		}
		return strings.Join(texts, l.text(a.between))
	case int:
		return spelling.Grouped(int64(a))
	case int64:
		return spelling.Grouped(a)
	}
	return arg
}
