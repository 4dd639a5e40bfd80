package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/config"
)

// settingFlag is a flag that gives a setting. What is wrong with it is found where a file's values are.
type settingFlag struct {
	path string
	row  *schema.Row
	text string
}

// addSettingFlags adds the flags of settings; of all, or of those with the names.
func addSettingFlags(f *pflag.FlagSet, names ...string) {
	config.Table().Walk("", func(path string, row *schema.Row) {
		if row.Flag == "" || len(names) > 0 && !slices.Contains(names, row.Flag) {
			return
		}
		flag := f.VarPF(&settingFlag{path: path, row: row}, row.Flag, "", helpOf(row))
		flag.DefValue = strings.Trim(row.Default+row.Computed, "[]")
		if row.Kind == schema.KindBool {
			flag.NoOptDefVal = "true"
		}
	})
}

// helpOf is the first sentence of what row says, and its words.
func helpOf(row *schema.Row) string {
	text, _, _ := strings.Cut(row.Says, ". ")
	text = strings.TrimSuffix(text, ".")
	first, size := utf8.DecodeRuneInString(text)
	if second, _ := utf8.DecodeRuneInString(text[size:]); !unicode.IsUpper(second) {
		text = string(unicode.ToLower(first)) + text[size:]
	}
	if row.Item != nil && len(row.Item.Words) > 0 {
		text += ", separated by commas: " + strings.Join(row.Item.Words, ", ")
	}
	return text
}

func (f *settingFlag) Set(text string) error {
	f.text = text
	return nil
}

func (f *settingFlag) String() string { return f.text }

// Type is the word for the value in help texts.
func (f *settingFlag) Type() string {
	switch {
	case f.row == nil:
		return ""
	case f.row.Kind == schema.KindBool:
		return "bool"
	case f.row.Kind == schema.KindList:
		return "NAMES"
	}
	return strings.ToUpper(f.row.What)
}

func (f *settingFlag) given(name string) config.Given {
	text := f.text
	if f.row.Kind == schema.KindList {
		list, _ := json.Marshal(strings.Split(text, ",")) // which YAML reads
		text = string(list)
	}
	return config.Given{Path: f.path, Text: text, From: "--" + name}
}

// givenByFlags are the settings that flags of f give.
func givenByFlags(f *pflag.FlagSet) (all []config.Given) {
	f.Visit(func(flag *pflag.Flag) {
		if s, ok := flag.Value.(*settingFlag); ok {
			all = append(all, s.given(flag.Name))
		}
	})
	return all
}

// usageIfGiven makes err an error of the call if all of it is about flags and variables.
func usageIfGiven(err error) error {
	var wrong *yamlnode.Error
	if errors.As(err, &wrong) && !slices.ContainsFunc(wrong.Problems, func(p yamlnode.Problem) bool { return p.From == "" }) {
		return errUsage{err}
	}
	return err
}
