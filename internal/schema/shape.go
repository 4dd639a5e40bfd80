package schema

// Shape is what a value may be.
type Shape struct {
	Kind Kind
	// What names the kind of text: address, URL, file.
	What string
	// Words are all words of KindWords.
	Words []string
	// Least and Most bound a number, a duration or a size, inclusive, as written in a file; empty: no
	// bound.
	Least, Most string
	// Pattern is a regular expression that texts must match; empty: any. For KindWords, it matches
	// other spellings of the words, such as capitals, and for KindNumber, texts that may be quoted;
	// empty: none.
	Pattern string
	// Item is the shape of each element of a list, or each value of a mapping whose names the file
	// chooses; Names is a regular expression for these names; empty: any.
	Item  *Shape
	Names string
	// Rows are the fields of a mapping. Optional means that their defaults count only if the mapping is
	// there.
	Rows     func() Rows
	Optional bool
	// Expands means that the text may contain ${NAME} and ${file:PATH}.
	Expands bool
	// Or are other shapes that the value may have instead.
	Or []Shape
}

// Kind is the form of a value in YAML.
type Kind uint8

const (
	KindText   Kind = iota // a YAML string: a number must be quoted
	KindScalar             // any scalar, by its text
	KindBool
	KindNumber
	KindFloat
	KindDuration
	KindSize
	KindWords
	KindList
	KindMapping
	KindNames // a mapping whose names the file chooses
)

// Patterns of several kinds of texts.
const (
	// Something is for texts that must not be empty.
	Something = "."
	// Name is for names of rules, tiers, routes and the like; see package rules' IsName.
	Name = "^[A-Za-z0-9_.:/-]{1,64}$"
	// Token is for HTTP methods and header names.
	Token = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
)

// Scalar is text that need not be quoted even if YAML reads it as a number.
func Scalar(what, pattern string) Shape { return Shape{Kind: KindScalar, What: what, Pattern: pattern} }

// Words is one of a few words.
func Words(words ...string) Shape { return Shape{Kind: KindWords, What: "one of", Words: words} }

// Size is a size such as 512MiB, from least to most; empty: no bound.
func Size(least, most string) Shape {
	return Shape{Kind: KindSize, What: "size", Least: least, Most: most}
}

// OrElse is s or another.
func (s Shape) OrElse(others ...Shape) Shape {
	s.Or = append(s.Or[:len(s.Or):len(s.Or)], others...)
	return s
}

// IsScalar reports whether a text can be a value of s.
func (s *Shape) IsScalar() bool {
	return s.Kind != KindList && s.Kind != KindMapping && s.Kind != KindNames
}

// Walk calls visit with each row in rows and below, and its path: routes[].tls.ca.
func (rows Rows) Walk(path string, visit func(path string, row *Row)) {
	for i := range rows {
		row := &rows[i]
		at := row.Name
		if path != "" {
			at = path + "." + row.Name
		}
		visit(at, row)
		row.walk(at, visit)
	}
}

func (s *Shape) walk(path string, visit func(string, *Row)) {
	switch {
	case s.Kind == KindMapping:
		s.Rows().Walk(path, visit)
	case s.Kind == KindList && s.Item != nil:
		s.Item.walk(path+"[]", visit)
	case s.Kind == KindNames && s.Item != nil:
		s.Item.walk(path+".NAME", visit)
	}
	for i := range s.Or {
		s.Or[i].walk(path, visit)
	}
}
