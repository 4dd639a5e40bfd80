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

// read reads the rules files at path, which may be empty if e has a directory, and then the files in
// that directory, or else in the one that the settings of the rules files name. from is that
// directory; nil: there is none.
func (e *envoyFiles) read(path string) (files []rules.File, from *rules.EnvoyFiles, err error) {
	from = &rules.EnvoyFiles{Path: e.directory, IgnoreDotFiles: true, MergeDomains: e.merge}
	if path != "" || e.directory == "" {
		if files, err = rules.Read(path); err != nil {
			return nil, nil, err
		}
		settings, err := config.ReadSettings(files, nil)
		if err == nil && settings.Envoy != nil { // an error is reported with those of the rules
			from.Path = cmp.Or(from.Path, settings.Envoy.Directory)
			from.MergeDomains = from.MergeDomains || settings.Envoy.MergeDomains
		}
	}
	if from.Path == "" {
		return files, nil, nil
	}
	more, err := from.Read()
	return append(files, more...), from, err
}

// config is config.Read of the files that read finds.
func (e *envoyFiles) config(path string) (config.Settings, *rules.Set, error) {
	files, _, err := e.read(path)
	if err != nil {
		return config.Settings{}, nil, err
	}
	return config.Read(files, redislimit.CheckAddress)
}

func readConfig(path string) (config.Settings, *rules.Set, error) {
	return new(envoyFiles).config(path)
}
