package schema

import (
	"fmt"
	"io"
	"strings"
)

// WriteTable writes a table of rows and all below them to a page in docs, in Markdown. path is the path
// of the mapping with the rows; empty: none is shown. Each row has its path as its anchor. name returns a
// text to show beside a path, such as a flag; nil: none.
func WriteTable(w io.Writer, rows Rows, path string, name func(path string, row *Row) string) {
	fmt.Fprintln(w, "| Field | What it does | Value | Default | Example |\n| --- | --- | --- | --- | --- |")
	rows.Walk(path, func(path string, row *Row) {
		field := fmt.Sprintf(`<a id="%s"></a>%s`, path, code(path))
		if name != nil {
			if more := name(path, row); more != "" {
				field += "<br>" + more
			}
		}
		says := row.Says + row.needsText()
		if row.See != "" {
			says += fmt.Sprintf(" [More](%s)", row.See)
		}
		if row.Since != "" {
			says += " Since " + row.Since + "."
		}
		byDefault := row.Computed
		switch {
		case row.Required:
			byDefault = "**needed**"
		case row.Default != "":
			byDefault = code(row.Default)
		}
		value := row.Shape.String()
		if row.Expands {
			value += ", `${NAME}`"
		}
		if row.Reread {
			value += ", reread"
		}
		example := ""
		if row.Example != "" {
			example = code(row.Example)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", field, cell(says), cell(value), cell(byDefault), example)
	})
}

func code(text string) string { return "`" + cell(text) + "`" }

// cell escapes text for a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// String says in words what a value may be.
func (s *Shape) String() string {
	text := s.alone()
	for i := range s.Or {
		text += " or " + s.Or[i].String()
	}
	return text
}

func (s *Shape) alone() string {
	switch s.Kind {
	case KindBool:
		return "`true`, `false`"
	case KindWords:
		words := make([]string, len(s.Words))
		for i, word := range s.Words {
			words[i] = code(word)
		}
		return strings.Join(words, ", ")
	case KindList:
		if s.Item == nil || s.Item.Kind == KindMapping {
			return "list of mappings"
		}
		return "list of: " + s.Item.String()
	case KindMapping:
		return "mapping"
	case KindNames:
		return "mapping of names"
	}
	switch {
	case s.Kind == KindScalar: // its bounds are for those that are numbers
		return s.What
	case s.Least != "" && s.Least == s.Most:
		return s.Least
	case s.Kind == KindNumber && s.Least != "" && s.Most != "":
		return s.Least + " to " + s.Most
	case s.Least != "" && s.Most != "":
		return s.What + ", " + s.Least + " to " + s.Most
	case s.Least == "more than 0":
		return s.What + ", above 0"
	case s.Least != "" && s.Least != "0" && s.Least != "0s":
		return s.What + ", from " + s.Least
	}
	return s.What
}
