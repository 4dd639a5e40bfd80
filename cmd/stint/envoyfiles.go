package main

import (
	"runtime"
	"slices"
	"strings"

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
	f.StringVar(&e.directory, "envoy", "", "also read Envoy's descriptor files in `DIR`")
	f.BoolVar(&e.merge, "merge-domains", false, "let several descriptor files have one domain, like MERGE_DOMAIN_CONFIG")
}

// configFiles are the files of a configuration.
type configFiles struct {
	own         []rules.File      // rules and settings
	opened      *rules.Opened     // own; nil: they are not opened, or there are none
	descriptors []rules.File      // of Envoy's form
	from        *rules.EnvoyFiles // where descriptors are; nil: nowhere
	wrong       error             // with descriptors, where the start may do without them
}

func (c *configFiles) all() []rules.File { return orEmpty(slices.Concat(c.own, c.descriptors)) }

// source is all files, and no more, of a configuration. Reading it takes all processors: nothing else runs yet.
func (c *configFiles) source() config.Source {
	s := config.Source{Files: c.all(), CheckStore: redislimit.CheckAddress, Workers: runtime.GOMAXPROCS(0)}
	if c.opened != nil {
		s.Opened = c.opened.And(c.descriptors)
	}
	return s
}

// orEmpty returns files, or one without rules if there are none.
func orEmpty(files []rules.File) []rules.File {
	if len(files) == 0 {
		return []rules.File{{Name: "no configuration", Data: []byte("rules: []")}}
	}
	return files
}

// read reads the rules files at path, and then the files in e's directory, or else in the one that the
// settings name, which are those of the rules files and what is given. path may be empty if there is a
// directory, or if a management server is given.
func (e *envoyFiles) read(path string, given []config.Given) (files configFiles, err error) {
	files.from = &rules.EnvoyFiles{Path: e.directory, IgnoreDotFiles: true, MergeDomains: e.merge}
	managed := false
	for _, g := range given {
		switch {
		case g.Path == "envoy.directory":
			files.from.Path = g.Text
		case strings.HasPrefix(g.Path, "envoy.xds."):
			managed = true
		}
	}
	if path != "" || files.from.Path == "" && !managed {
		if files.own, err = rules.Read(path); err != nil {
			return files, err
		}
		files.opened = rules.Open(files.own)
	}
	settings, err := (&config.Source{Files: files.own, Opened: files.opened, Given: given, FormOnly: true}).ReadSettings()
	startWithout := false
	if err == nil && settings.Envoy != nil { // an error is reported with those of the rules
		startWithout = settings.Envoy.StartWithoutDescriptors
		if from := settings.Envoy.Files(); from != nil && e.directory == "" {
			files.from = from
		}
		files.from.MergeDomains = e.merge || settings.Envoy.MergeDomains
	}
	if files.from.Path == "" {
		files.from = nil
		return files, nil
	}
	files.descriptors, err = files.from.Read()
	if startWithout {
		files.wrong, err = err, nil
	}
	return files, err
}

// config is the configuration in the files that read finds, which may be those of another machine.
func (e *envoyFiles) config(path string) (config.Settings, *rules.Set, error) {
	files, err := e.read(path, nil)
	if err != nil {
		return config.Settings{}, nil, err
	}
	source := files.source()
	source.FormOnly = true
	return source.Read()
}

func readConfig(path string) (config.Settings, *rules.Set, error) {
	return new(envoyFiles).config(path)
}
