package errorformat

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/stintdev/stint/internal/limittext"
)

// checkMarkup returns an error if a placeholder of a template of HTML or XML is at a place where
// escaping its value does not keep it text, or if the template ends within a tag or a comment. offset
// is the place, in bytes. Otherwise it does not check HTML: browsers read any text as HTML.
func checkMarkup(text string, all []span, isXML bool) (offset int, err error) {
	for _, one := range all {
		before := strings.TrimRight(text[:one.from], "#0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
		if strings.HasSuffix(before, "&") {
			return len(before) - 1, errors.New("a placeholder cannot follow an &: for an & that is text, write &amp;")
		}
	}
	s := scanner{text: text, lower: strings.Map(lowerASCII, text), spans: all, isXML: isXML}
	for s.at < len(text) {
		if err := s.next(); err != nil {
			return s.at, err
		}
	}
	return 0, nil
}

// scanner reads a template of HTML or XML tag by tag.
type scanner struct {
	text  string
	lower string // text, with the letters of ASCII in lower case
	at    int
	spans []span
	isXML bool
}

// holderBefore moves to the first placeholder before end, and returns its name; "": there is none.
func (s *scanner) holderBefore(end int) string {
	for _, one := range s.spans {
		if one.from >= s.at && one.from < end {
			s.at = one.from
			return placeholders[one.holder].name
		}
	}
	return ""
}

// pass moves behind the next end; there must be no placeholder before. what names the construct that
// ends.
func (s *scanner) pass(end, what string) error {
	i := strings.Index(s.lower[s.at:], end)
	if i < 0 {
		return fmt.Errorf("%s does not end", what)
	}
	if name := s.holderBefore(s.at + i); name != "" {
		return fmt.Errorf("{%s} cannot be within %s", name, what)
	}
	s.at += i + len(end)
	return nil
}

// next moves from text to behind the next tag, comment or the like.
func (s *scanner) next() error {
	i := strings.IndexByte(s.text[s.at:], '<')
	if i < 0 {
		s.at = len(s.text)
		return nil
	}
	s.at += i
	rest := s.text[s.at:]
	switch {
	case strings.HasPrefix(rest, "<!--"):
		return s.pass("-->", "a comment")
	case s.isXML && strings.HasPrefix(rest, "<![CDATA["):
		return s.pass("]]>", "a CDATA section")
	case s.isXML && strings.HasPrefix(s.lower[s.at:], "<!doctype"):
		return s.pass(">", "a document type")
	case strings.HasPrefix(rest, "<!"), strings.HasPrefix(rest, "<?"):
		return s.pass(">", "a declaration")
	case len(rest) > 1 && (rest[1] == '/' || isLetter(rest[1])):
		return s.tag()
	}
	s.at++ // a < that is text
	if holder := s.holderAt(); holder != "" {
		return fmt.Errorf("{%s} cannot follow a <: for a < that is text, write &lt;", holder)
	}
	return nil
}

func lowerASCII(c rune) rune {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

const space = " \t\r\n\f"

// tag moves behind a tag, and behind the content of an element that is not markup.
func (s *scanner) tag() error {
	begins := s.at
	s.at++
	closes := s.text[s.at] == '/'
	if closes {
		s.at++
	}
	name := strings.ToLower(s.until(space + "/>"))
	if holder := s.holderAt(); holder != "" {
		return fmt.Errorf("{%s} cannot be part of a tag", holder)
	}
	ended, err := s.attributes(begins)
	if err != nil || closes || s.isXML && ended == "/>" {
		return err
	}
	switch name {
	case "script", "style", "xmp", "iframe", "noembed", "noframes", "noscript":
		content := s.at
		if err := s.pass("</"+name, "<"+name+">"); err != nil {
			return err
		}
		if i := strings.Index(s.text[content:s.at], "<!--"); i >= 0 {
			s.at = content + i
			return fmt.Errorf("<!-- within <%s> changes where it ends", name)
		}
		return s.pass(">", "a tag")
	case "plaintext":
		s.at = begins
		return errors.New("<plaintext> does not end")
	case "title", "textarea":
		if s.isXML {
			return nil
		}
		i := strings.Index(s.lower[s.at:], "</"+name)
		if i < 0 {
			s.at = begins
			return fmt.Errorf("<%s> does not end", name)
		}
		s.at += i
	}
	return nil
}

// until moves to the next of these characters or placeholder, and returns what is before.
func (s *scanner) until(any string) string {
	begin, end := s.at, len(s.text)
	if i := strings.IndexAny(s.text[s.at:], any); i >= 0 {
		end = s.at + i
	}
	if s.holderBefore(end) == "" {
		s.at = end
	}
	return s.text[begin:s.at]
}

func (s *scanner) holderAt() string { return s.holderBefore(s.at + 1) }

// attributes moves behind the end of a tag, > or />, which it returns.
func (s *scanner) attributes(begins int) (string, error) {
	for {
		if s.at += len(s.text[s.at:]) - len(strings.TrimLeft(s.text[s.at:], space)); s.at == len(s.text) {
			s.at = begins
			return "", errors.New("a tag does not end")
		}
		rest := s.text[s.at:]
		switch {
		case rest[0] == '>':
			s.at++
			return ">", nil
		case strings.HasPrefix(rest, "/>"):
			s.at += 2
			return "/>", nil
		case rest[0] == '/':
			s.at++
			continue
		case rest[0] == '"' || rest[0] == '\'' || rest[0] == '<' || rest[0] == '=':
			return "", fmt.Errorf("%c where the name of an attribute or the end of a tag is wanted", rest[0])
		}
		name := s.until(space + "/>=\"'<")
		if holder := s.holderAt(); holder != "" {
			return "", fmt.Errorf("{%s} in a tag must be in the quoted value of an attribute", holder)
		}
		after := strings.TrimLeft(s.text[s.at:], space)
		if !strings.HasPrefix(after, "=") {
			continue
		}
		s.at = len(s.text) - len(strings.TrimLeft(after[1:], space))
		if err := s.value(strings.ToLower(name)); err != nil {
			return "", err
		}
	}
}

// value moves behind the value of an attribute.
func (s *scanner) value(name string) error {
	if s.at == len(s.text) {
		return nil // attributes reports it
	}
	quote := s.text[s.at]
	if quote != '"' && quote != '\'' {
		s.until(space + ">")
		if holder := s.holderAt(); holder != "" {
			return fmt.Errorf("quote the value of the attribute %q, which has {%s}", limittext.Clip(name), holder)
		}
		return nil
	}
	i := strings.IndexByte(s.text[s.at+1:], quote)
	if i < 0 {
		return errors.New("a quote does not end")
	}
	end := s.at + 1 + i
	if strings.HasPrefix(name, "on") || name == "style" || name == "srcdoc" {
		if holder := s.holderBefore(end); holder != "" {
			return fmt.Errorf("{%s} cannot be in the attribute %q, whose value is not text", holder, limittext.Clip(name))
		}
	}
	s.at = end + 1
	return nil
}

// checkXML returns what is wrong with an XML document, and where.
func checkXML(text string) (int, error) {
	d := xml.NewDecoder(strings.NewReader(text))
	depth, roots := 0, 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			if roots != 1 {
				return len(text), fmt.Errorf("not one XML document: it has %d elements outside of others", roots)
			}
			return 0, nil
		}
		if err != nil {
			return int(d.InputOffset()), fmt.Errorf("not well-formed XML: %w", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if depth == 0 {
				roots++
			}
			depth++
		case xml.EndElement:
			depth--
		case xml.CharData:
			if depth == 0 && strings.Trim(string(token), space) != "" {
				return int(d.InputOffset()) - 1, errors.New("not one XML document: there is text outside of its element")
			}
		}
	}
}
