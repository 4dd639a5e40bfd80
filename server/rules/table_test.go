package rules_test

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/schema/rowtest"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

func TestRows(t *testing.T) { rowtest.Complete(t, rules.Table(), 100) }

var listsFields = regexp.MustCompile(`unknown field "` + rowtest.Nonsense + `" \(fields: (.*)\)`)

// The mappings that the parser knows are those of the table, with the same fields. The parser is asked:
// of each mapping, it lists the fields when one is wrong.
func TestRowsAreWhatIsParsed(t *testing.T) {
	parsed := map[string][]string{}
	var ask func(in func(string) string, path string)
	ask = func(in func(string) string, path string) {
		m := listsFields.FindStringSubmatch(wrongIn(in("{" + rowtest.Nonsense + ": 1}")))
		if m == nil {
			return
		}
		if parsed[path] = strings.Split(m[1], ", "); len(parsed) > 100 {
			t.Fatalf("more and more mappings: %s", path)
		}
		for _, name := range parsed[path] {
			at := strings.TrimPrefix(path+"."+name, ".")
			ask(func(v string) string { return in("{" + name + ": " + v + "}") }, at)
			ask(func(v string) string { return in("{" + name + ": [" + v + "]}") }, at+"[]")
			if at != "tiers" { // a text that it does not know is an expression
				ask(func(v string) string { return in("{" + name + ": {application/json: " + v + "}}") }, at+".NAME")
			}
		}
	}
	ask(func(v string) string { return v }, "")

	table := map[string][]string{"": {"server"}}
	rules.Table().Walk("", func(path string, _ *schema.Row) {
		i := strings.LastIndexByte(path, '.')
		table[path[:max(i, 0)]] = append(table[path[:max(i, 0)]], path[i+1:])
	})
	for path, names := range table {
		slices.Sort(names)
		if !slices.Equal(names, parsed[path]) {
			t.Errorf("%q: the table has %q, the parser %q", path, names, parsed[path])
		}
	}
	for path := range parsed {
		if table[path] == nil {
			t.Errorf("%q: the parser has %q, the table nothing", path, parsed[path])
		}
	}
}

func wrongIn(file string) string {
	if _, err := rules.Parse("f", []byte(file)); err != nil {
		return err.Error()
	}
	return ""
}

// What a row says that its field may be is read, in a file that is right otherwise, and what it excludes
// is refused there.
func TestRowsTellWhatIsRead(t *testing.T) {
	rules.Table().Walk("", func(path string, row *schema.Row) {
		right, wrong := rowtest.Values(&row.Shape, nameAt(path))
		for _, text := range append(right, row.Default, row.Example) {
			if text == "" {
				continue
			}
			file, _ := fileWith(path, text)
			if _, err := rules.Parse("f", []byte(file)); err != nil {
				t.Errorf("%s: %s is refused: %v\nin %s", path, text, err, file)
			}
		}
		for _, text := range wrong {
			file, column := fileWith(path, text)
			_, err := rules.Parse("f", []byte(file))
			var of *yamlnode.Error
			if !errors.As(err, &of) || !slices.ContainsFunc(of.Problems, func(p yamlnode.Problem) bool { return p.Column >= column && p.Column <= column+len(text) }) {
				t.Errorf("%s: %s is not refused there: %v\nin %s", path, text, err, file)
			}
		}
		if row.Required {
			file, _ := fileWith(path, "")
			if wrongIn(file) == "" {
				t.Errorf("%s is not needed: %s", path, file)
			}
		}
	})
}

// A field that has its value by default is as one that is left out.
func TestRowsTellDefaults(t *testing.T) {
	// Limits and penalties show what they were written with.
	same := strings.NewReplacer(" buckets 10", "", " retry 1s", "", "Growth:1 ", "Growth:0 ",
		"ForgetAfter:"+algo.DefaultForget.String(), "ForgetAfter:0s", "MaxBan:"+algo.MaxBan.String(), "MaxBan:0s")
	n := 0
	rules.Table().Walk("", func(path string, row *schema.Row) {
		if row.Default == "" {
			return
		}
		n++
		with, _ := fileWith(path, row.Default)
		without, _ := fileWith(path, "")
		if with, without := same.Replace(outcome(with)), same.Replace(outcome(without)); with != without {
			t.Errorf("%s: with %s, it is\n%s\nwithout\n%s", path, row.Default, with, without)
		}
	})
	if n < 25 {
		t.Errorf("%d fields have a value by default", n)
	}
}

// beside are the fields that stand beside others in a file that is right: for each field of a mapping,
// whose path ends in a dot, for one field, and for one value of it. The later replace the earlier.
var beside = map[string]string{
	".":                                    `tiers: {gold: client.ip == "192.0.2.1"}; rules: [{name: login, limits: ["5 per 1m"]}]`,
	"rules[].":                             `name: x; limits: ["5 per 1m"]`,
	"rules[].shape":                        `limits: ["10 per 1s leaky_bucket burst 50"]`,
	"rules[].cost_after":                   budget,
	"rules[].unsettled":                    budget + `; cost_after: response.json.n`,
	"rules[].debt":                         budget,
	"rules[].max_hold":                     budget,
	"rules[].tokens":                       budget,
	"rules[].unreadable_body":              `match: 'has(body.n)'`,
	"rules[].messages":                     `penalty: {warn_after: 2, ban_after: 4, ban_for: 1m}`,
	"rules[].tokens.":                      `api: openai`,
	"rules[].penalty.":                     `ban_after: 3; ban_for: 1ms`,
	"rules[].penalty.warn_after":           `ban_after: 5`,
	"rules[].penalty.ban_after":            `warn_after: 1`,
	"rules[].penalty.ban_for":              `ban_after:; warn_after: 1`,
	"rules[].limits[].":                    `amount: 5; period: 1m`,
	"rules[].limits[].amount":              `algorithm: fixed_window`,
	"rules[].limits[].algorithm=in_flight": `period:`,
	"rules[].limits[].burst":               `amount: 1; period: 1ms`,
	"rules[].limits[].period":              `algorithm: sliding_log`,
	"rules[].limits[].buckets":             `algorithm: sliding_window`,
	"rules[].limits[].per":                 `period:`,
	"rules[].limits[].in":                  `period:; per: month`,
	"rules[].limits[].starts":              `period:; per: month`,
	"rules[].limits[].hold":                `algorithm: fixed_window`,
	"rules[].limits[].retry":               held,
	"rules[].limits[].debt":                held,
	"alerts[].":                            `name: x; when: bans() > 5`,
	"refusal.bodies.NAME.":                 `text: '{}'`,
	"rules[].refusal.bodies.NAME.":         `text: '{}'`,
}

const (
	budget = `limits: ["500 per 1m fixed_window hold"]`
	held   = `algorithm: fixed_window; hold: true`
)

func init() { // a tier's limits are as a rule's
	for path, fields := range maps.Clone(beside) {
		if of, ok := strings.CutPrefix(path, "rules[].limits[]."); ok {
			beside["rules[].tiers.NAME.limits[]."+of] = fields
		}
	}
}

// nameAt is a name that a mapping takes whose names the file chooses.
func nameAt(path string) string {
	switch {
	case strings.HasSuffix(path, "tiers"):
		return "gold"
	case strings.HasSuffix(path, "bodies"):
		return "application/json"
	case strings.HasSuffix(path, "headers"):
		return "X-Code"
	}
	return "en" // a language, and a label
}

// fileWith is a file that has text at path, and what it needs besides, and the column of text. Without a
// text, the field is not there.
func fileWith(path, text string) (file string, column int) {
	before, after, at := "", "", ""
	segments := strings.Split(path, ".")
	for i, name := range segments {
		if name == "NAME" {
			before, after, at = before+"{"+nameAt(at)+": ", "}"+after, at+".NAME"
			continue
		}
		field := strings.TrimPrefix(at+"."+name, ".")
		name, isList := strings.CutSuffix(name, "[]")
		all := map[string]string{}
		for _, fields := range []string{beside[at+"."], beside[strings.TrimSuffix(field, "[]")], beside[path+"="+text]} {
			for f := range strings.SplitSeq(fields, "; ") {
				if n, value, _ := strings.Cut(f, ":"); n != "" {
					all[n] = value
				}
			}
		}
		before += "{"
		for _, n := range slices.Sorted(maps.Keys(all)) {
			if n != name && all[n] != "" {
				before += n + ":" + all[n] + ", "
			}
		}
		at, after = field, "}"+after
		if i == len(segments)-1 && text == "" {
			break
		}
		if before += name + ": "; isList {
			before, after = before+"[", "]"+after
		}
	}
	return before + text + after, len([]rune(before)) + 1
}
