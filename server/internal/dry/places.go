package dry

import (
	"strconv"
	"strings"

	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/adminapi"
)

// locate finds the amount of each limit in the text of the rules, which is valid. It leaves out those that it does
// not find in digits on one line, such as multiples of another limit.
func locate(all []adminapi.PreviewPeaks, text string) {
	if len(all) == 0 || strings.ContainsAny(strings.ReplaceAll(text, "\r\n", "\n"), otherBreaks) {
		return
	}
	reader, root := yamlnode.Open("", []byte(text))
	named := map[string]*yamlnode.Node{}
	if list := yamlnode.Field(root, "rules"); list != nil {
		for _, rule := range list.Content {
			if name := yamlnode.Field(rule, "name"); name != nil {
				named[name.Value] = rule
			}
		}
	}
	lines := strings.Split(text, "\n")
	for i := range all {
		of := &all[i]
		if of.Unmeasured == "" {
			of.Place = placeOf(reader, lines, limitIn(named[of.Rule], of), of.Amount)
		}
	}
}

// otherBreaks end lines for YAML and not for editors, so that a line of one could be another's.
const otherBreaks = "\r\u0085\u2028\u2029"

// limitIn is the node of a limit in a rule's; nil: it is not there.
func limitIn(rule *yamlnode.Node, of *adminapi.PreviewPeaks) *yamlnode.Node {
	if of.Tier != "" {
		rule = yamlnode.Field(yamlnode.Field(rule, "tiers"), of.Tier)
	}
	limits := yamlnode.Field(rule, "limits")
	if limits == nil || of.Index >= len(limits.Content) {
		return nil
	}
	return limits.Content[of.Index]
}

// placeOf is the place of the amount in the text or the mapping of a limit. The digits must stand there as such.
func placeOf(reader *yamlnode.Reader, lines []string, limit *yamlnode.Node, amount int64) *adminapi.PreviewPlace {
	if limit == nil {
		return nil
	}
	if field := yamlnode.Field(limit, "amount"); field != nil {
		limit = field
	}
	digits := strconv.FormatInt(amount, 10)
	before := len(limit.Value) - len(strings.TrimLeft(limit.Value, " \t\n"))
	line, column := reader.Position(limit, before)
	if line > len(lines) {
		return nil
	}
	row := []rune(strings.TrimSuffix(lines[line-1], "\r"))
	start, end := column-1, column-1+len(digits)
	if start < 0 || end > len(row) || string(row[start:end]) != digits || end < len(row) && isDigit(row[end]) {
		return nil
	}
	return &adminapi.PreviewPlace{Line: line, Column: column, Length: len(digits)}
}

func isDigit(c rune) bool { return c >= '0' && c <= '9' }
