package main

import (
	"cmp"

	"github.com/spf13/pflag"

	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// envoyFiles are flags that name a directory of files of Envoy's form.
type envoyFiles struct {
	directory string
	merge     bool
}

func (e *envoyFiles) addFlags(f *pflag.FlagSet) {
	f.StringVar(&e.directory, "envoy", "", "read Envoy's files of descriptors in `DIR`, too")
	f.BoolVar(&e.merge, "merge-domains", false, "let several of Envoy's files have one domain, as MERGE_DOMAIN_CONFIG does")
}

// read reads the rules files at path, which may be empty if there is a directory, and then the files in
// e's directory, or else in the one that the settings name, which are those of the rules files and what is
// given. from is that
// directory; nil: there is none.
func (e *envoyFiles) read(path string, given []config.Given) (files []rules.File, from *rules.EnvoyFiles, err error) {
	from = &rules.EnvoyFiles{Path: e.directory, IgnoreDotFiles: true, MergeDomains: e.merge}
	for _, g := range given {
		if g.Path == "envoy.directory" {
			from.Path = g.Text
		}
	}
	if path != "" || from.Path == "" {
		if files, err = rules.Read(path); err != nil {
			return nil, nil, err
		}
	}
	settings, err := (&config.Source{Files: files, Given: given, FormOnly: true}).ReadSettings()
	if err == nil && settings.Envoy != nil { // an error is reported with those of the rules
		from.Path = cmp.Or(from.Path, settings.Envoy.Directory)
		from.MergeDomains = from.MergeDomains || settings.Envoy.MergeDomains
	}
	if from.Path == "" {
		return files, nil, nil
	}
	more, err := from.Read()
	return append(files, more...), from, err
}

// config is the configuration in the files that read finds, which may be those of another machine.
func (e *envoyFiles) config(path string) (config.Settings, *rules.Set, error) {
	files, _, err := e.read(path, nil)
	if err != nil {
		return config.Settings{}, nil, err
	}
	return (&config.Source{Files: files, CheckStore: redislimit.CheckAddress, FormOnly: true}).Read()
}

func readConfig(path string) (config.Settings, *rules.Set, error) {
	return new(envoyFiles).config(path)
}
