//go:build manual

// scripts/manual runs this file, which no program that is released has: what it imports stays out of them.

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra/doc"

	"github.com/stintdev/stint/server"
)

func init() {
	if len(os.Args) != 3 || os.Args[1] != "manual" {
		return
	}
	if err := writeManual(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// writeManual writes a page of the manual for each command into man, and a script for each shell into
// completions, two folders below dir that are there.
func writeManual(dir string) error {
	root := newProgram(strings.NewReader(""), io.Discard, server.NewLogWriter(io.Discard))
	root.DisableAutoGenTag = true
	// The date is that of SOURCE_DATE_EPOCH.
	err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Stint", Manual: "Stint"}, filepath.Join(dir, "man"))
	if err != nil {
		return err
	}
	for name, write := range map[string]func(string) error{
		"stint.bash": func(file string) error { return root.GenBashCompletionFileV2(file, true) },
		"_stint":     root.GenZshCompletionFile,
		"stint.fish": func(file string) error { return root.GenFishCompletionFile(file, true) },
	} {
		if err := write(filepath.Join(dir, "completions", name)); err != nil {
			return err
		}
	}
	return nil
}
