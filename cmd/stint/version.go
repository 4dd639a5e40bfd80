package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "version", Short: "print the version", Args: words(),
		Long: "Prints the versions of the program and of the Go that built it.",
		RunE: func(c *cobra.Command, _ []string) error {
			if !asJSON {
				return printVersion(c)
			}
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = new(debug.BuildInfo)
			}
			e := json.NewEncoder(c.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(buildOf(info))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print version, commit, time, go, os and arch as JSON")
	return c
}

// withVersion gives root the flag --version. That of Cobra takes a template; see usage.
func withVersion(root *cobra.Command) *cobra.Command {
	asked := false
	root.Flags().BoolVarP(&asked, "version", "v", false, "version for stint")
	args, run := root.Args, root.RunE
	root.Args = func(c *cobra.Command, words []string) error {
		if asked {
			return nil
		}
		return args(c, words)
	}
	root.RunE = func(c *cobra.Command, words []string) error {
		if asked {
			return printVersion(c)
		}
		return run(c, words)
	}
	return root
}

func printVersion(c *cobra.Command) error {
	_, err := fmt.Fprintf(c.OutOrStdout(), "stint %s, %s\n", version(), runtime.Version())
	return err
}

// build is how the program was built. What was not recorded is empty.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Time    string `json:"time"` // of the commit
	// Modified means that there were changes that were not committed.
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func buildOf(info *debug.BuildInfo) build {
	of := map[string]string{}
	for _, s := range info.Settings {
		of[s.Key] = s.Value
	}
	return build{Version: cmp.Or(info.Main.Version, "(devel)"), Commit: of["vcs.revision"], Time: of["vcs.time"], Modified: of["vcs.modified"] == "true",
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
}

// version is the module's version with the commit and its time, as far as recorded.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	b := buildOf(info)
	text := b.Version
	if b.Commit == "" {
		return text
	}
	text += ", commit " + b.Commit[:min(12, len(b.Commit))]
	if b.Time != "" {
		text += " of " + b.Time
	}
	if b.Modified {
		text += " and uncommitted changes"
	}
	return text
}
