package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/cmd/stint/internal/replay"
	"github.com/stintdev/stint/server/rules"
)

// share is a flag: a share above 0 and below 1, in percent.
type share float64

func (s *share) String() string { return "" }
func (s *share) Type() string   { return "share" }

func (s *share) Set(text string) error {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(percent > 0 && percent < 100) {
		return errors.New("want a percentage above 0 and below 100, such as 99.9%")
	}
	*s = share(percent / 100)
	return nil
}

// writeSuggested writes the rules of a file with the limits that are suggested, and nothing else changed, to the
// file to, which must not be there.
func writeSuggested(to, from string, all []replay.Suggestion) error {
	file, err := onlyFile(from)
	if err != nil {
		return err
	}
	text, err := withLimits(file, all)
	if err != nil {
		return err
	}
	if _, err := rules.Parse(to, text); err != nil {
		return fmt.Errorf("--suggested: %w", err)
	}
	return writeNew(to, text)
}

// onlyFile is the rules file at a path.
func onlyFile(path string) ([]byte, error) {
	files, err := rules.Read(path)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		return nil, fmt.Errorf("--suggested: %s has %d files: give --rules one of them", path, len(files))
	}
	return files[0].Data, nil
}

// withLimits is a rules file with other limits. Its comments stay.
func withLimits(data []byte, all []replay.Suggestion) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, err
	}
	for _, s := range all {
		limits := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, text := range s.Limits {
			limits.Content = append(limits.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: text})
		}
		for _, rule := range memberOf(root.Content[0], "rules").Content {
			if name := memberOf(rule, "name"); len(s.Limits) == 0 || name == nil || name.Value != s.Rule {
				continue
			}
			if old := memberOf(rule, "limits"); old != nil {
				*old = *limits
			} else {
				rule.Content = append(rule.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "limits"}, limits)
			}
		}
	}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := encoder.Encode(&root)
	return b.Bytes(), err
}

// memberOf is a value of a mapping; nil: it has no such member.
func memberOf(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}
