package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/stintdev/stint/server/adminapi"
)

// rulesDiff prints what a file would change about the fleet's rules. What pull
// wrote above the file is no difference.
func rulesDiff(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("rules diff")
	a, n := adminFlags(f, errs), numberFlag(f)
	words, err := parseMixed(f, args, rulesAbout, out, "FILE")
	if err != nil {
		return err
	}
	if a.json {
		return wrong(f, "--json: there is no JSON of a difference; `stint rules pull --json` has the text")
	}
	if err := a.open(f); err != nil {
		return err
	}
	file, err := readPulled(words[0])
	if err != nil {
		return fmt.Errorf("rules diff: %w", err)
	}
	data, err := a.versionJSON(ctx, n.value)
	if err != nil {
		return err
	}
	v, err := read[adminapi.Version](data)
	if err != nil {
		return err
	}
	text := diff.Diff(fmt.Sprintf("fleet/version-%d", v.Number), []byte(file.first+v.Text),
		shown(file.name), []byte(file.first+file.text))
	if text == nil {
		return nil
	}
	if _, err := out.Write(plainLines(text)); err != nil {
		return err
	}
	return errQuiet
}

// plainLines is plain for each line. Tabs, and a carriage return before the end of
// a line, stay.
func plainLines(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		line, end := bytes.CutSuffix(line, []byte("\n"))
		line, windows := bytes.CutSuffix(line, []byte("\r"))
		for i, part := range bytes.Split(line, []byte("\t")) {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(plain(string(part)))
		}
		if windows {
			b.WriteByte('\r')
		}
		if end {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
