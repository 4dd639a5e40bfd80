package main

import (
	"flag"

	"github.com/stintdev/stint/rules"
)

// shownKey is a key as a person reads it; empty for none.
func shownKey(k rules.Key) string {
	switch k {
	case "":
		return ""
	case "-": // which stands for none in tables
		return `"-"`
	}
	return k.String()
}

// keyFlag adds --key to f.
func keyFlag(f *flag.FlagSet, to *rules.Key) {
	var parts []string
	f.Func("key", "`KEY` as the rule's key expression makes it; where that is a list, --key for each part, in order", func(part string) (err error) {
		if parts = append(parts, part); len(parts) == 1 {
			*to = rules.Key(part)
			return nil
		}
		*to, err = rules.JoinKey(parts...)
		return err
	})
}
