// Command cluster writes the parts of deploy that are made:
//
//	make deploy
//
// Its tests check all of deploy without a cluster.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := write("../.."); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// write writes the chart's files first, by which the manifests are made.
func write(root string) error {
	for _, make := range []func(string) (map[string][]byte, error){ofChart, manifests} {
		files, err := make(root)
		if err == nil {
			err = writeFiles(root, files)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func writeFiles(root string, files map[string][]byte) error {
	for path, data := range files {
		path = filepath.Join(root, "deploy", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
