package rules_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/server/rules"
)

// TestDescriptorsGolden reads the stories in testdata/descriptors. They are as those of TestGolden,
// but a line "+++ name.yaml" begins another file, and "+++ name.yaml merge" one that may have the domain
// of another. A name that ends in rules.yaml is a rules file.
func TestDescriptorsGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/descriptors/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			golden.Run(t, path, func(_ *testing.T, text string) string { return outcomeOf(storyFiles(text)) })
		})
	}
}

func storyFiles(text string) (files []rules.File) {
	if !strings.HasPrefix(text, "+++ ") {
		text = "+++ a.yaml\n" + text
	}
	for _, part := range strings.Split("\n"+text, "\n+++ ")[1:] {
		head, data, _ := strings.Cut(part, "\n")
		name, mode, _ := strings.Cut(head, " ")
		files = append(files, rules.File{Name: name, Data: []byte(data + "\n"), Envoy: !strings.HasSuffix(name, "rules.yaml"), MergeDomain: mode == "merge"})
	}
	return files
}

// describeDescriptor writes what a rule of a descriptor has besides.
func describeDescriptor(b *strings.Builder, d *rules.DescriptorRule) {
	if d == nil {
		return
	}
	fmt.Fprintf(b, "    domain %s, stat %s, path", d.Domain, d.Stat)
	for _, e := range d.Path {
		fmt.Fprintf(b, " (%s, %s)", e.Key, e.Value)
	}
	b.WriteByte('\n')
	if len(d.Path) == 0 {
		return
	}
	fmt.Fprintf(b, "    %d per %d×%d s, name %q, unlimited %t, quota %t, charge refused %t, detailed %t, replaces %q\n",
		d.Amount, d.Times, d.Unit, d.Name, d.Unlimited, d.Quota, d.ChargeRefused, d.Detailed, d.Replaces)
	if d.Metadata != nil {
		fmt.Fprintf(b, "    metadata %v\n", d.Metadata)
	}
}

func TestStoryFiles(t *testing.T) {
	files := storyFiles("+++ x.yaml\na\n+++ y.yaml merge\nb\n+++ z.rules.yaml\n")
	if len(files) != 3 || files[0].Name != "x.yaml" || !files[1].MergeDomain || files[2].Envoy || string(files[0].Data) != "a\n" {
		t.Errorf("%+v", files)
	}
}
