package usage

import "bytes"

// For tests of package usage_test: where members of a Document lie, as judges of an Outline.

// Has reports whether there is a member of this name, or several.
func (d *Document) Has(name string) bool {
	text, err := d.find([]string{name})
	return text != nil || err != nil
}

// Span returns where in the data the value of path lies; not ok: there is none, or an error.
func (d *Document) Span(path []string) (from, to int, ok bool) {
	text, err := d.find(path)
	if err != nil || text == nil {
		return 0, 0, false
	}
	from = cap(d.data) - cap(text) // text is a part of data
	return from, from + len(text), true
}

// Start is how many bytes of an object are before its first member.
func (d *Document) Start() int { return bytes.IndexByte(d.data, '{') + 1 }
