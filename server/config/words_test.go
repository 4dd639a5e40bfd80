package config_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// nonsense is a word that no field takes.
const nonsense = "zzqx"

var (
	listsFields = regexp.MustCompile(`unknown field "` + nonsense + `" \(fields: (.*)\)`)
	// listsWords is what is said of a field that takes one of a few words, or of a bool.
	listsWords = regexp.MustCompile(`(?:one of|any of|must be|want|codes:) [-\w]+(?:, | or )[-\w]+`)
)

// Each field that takes one of a few words says, of another, its own name, what it got, and the words.
// The fields are those that the program lists of each mapping.
func TestWordsOfFields(t *testing.T) {
	w := wordFinder{t: t, named: map[string]bool{}}
	w.fields(func(value string) string { return value }, "", 0)
	for _, name := range []string{"mode", "on_store_error", "unsettled", "tokens", "api", "algorithm", "per", "unreadable_body", "shape", "enabled", "code",
		"ambiguous", "headers", "privacy", "format", "level", "kind", "scope", "protocol", "continue", "quota_shares", "algorithms", "rules"} {
		if !w.named[name] {
			t.Errorf("of %s, no words were found", name)
		}
	}
}

type wordFinder struct {
	t     *testing.T
	named map[string]bool
}

// fields tries all fields of the mapping that in puts into a file.
func (w *wordFinder) fields(in func(string) string, path string, depth int) {
	const deepest = 6
	if depth > deepest {
		return
	}
	m := listsFields.FindStringSubmatch(wrong(in("{" + nonsense + ": 1}")))
	if m == nil {
		return
	}
	for _, name := range strings.Split(m[1], ", ") {
		inField := func(value string) string { return in("{" + name + ": " + value + "}") }
		inList := func(value string) string { return inField("[" + value + "]") }
		w.words(inField, name, path+"."+name)
		w.words(inList, name, path+"."+name)
		w.fields(inField, path+"."+name, depth+1)
		w.fields(inList, path+"."+name, depth+1)
	}
}

func (w *wordFinder) words(in func(string) string, name, path string) {
	for _, line := range strings.Split(wrong(in(nonsense)), "\n") {
		switch {
		case !listsWords.MatchString(line), strings.HasSuffix(line, "have a list"):
			continue
		case strings.Contains(line, "missing"), strings.Contains(line, "has no "), strings.Contains(line, "needs one of"):
			continue // of another field, which is not there
		}
		w.named[name] = true
		singular := strings.TrimSuffix(name, "s")
		if !strings.Contains(line, singular) || !strings.Contains(line, `"`+nonsense+`"`) {
			w.t.Errorf("%s: %s: want the name of the field, what it got, and the words", strings.TrimPrefix(path, "."), line)
		}
	}
}

// wrong is what is wrong with a file.
func wrong(file string) string {
	if _, _, err := config.Read([]rules.File{{Name: "f", Data: []byte(file)}}, nil); err != nil {
		return err.Error()
	}
	return ""
}
