package algo

import (
	"embed"
	"strings"
)

// The scripts for Redis, made from the twins: a line "--> FILE SECTION" stands for that section of
// FILE.lua, which starts after a line "--@ SECTION" at the left margin; "--> FILE" for all of it.
var (
	TakeScript    = assemble("take")
	RefundScript  = assemble("refund")
	ViolateScript = assemble("violate")
	ResetScript   = assemble("reset")
	RecordScript  = assemble("record")
	InspectScript = assemble("inspect")
	HoldsScript   = assemble("holds")
)

//go:embed *.lua
var twins embed.FS

func assemble(file string) string {
	var b strings.Builder
	paste(&b, section(file, ""), "")
	return b.String()
}

func paste(b *strings.Builder, text, indent string) {
	for line := range strings.Lines(text) {
		code := strings.TrimLeft(line, " ")
		here := indent + line[:len(line)-len(code)]
		if include, ok := strings.CutPrefix(code, "--> "); ok {
			file, name, _ := strings.Cut(strings.TrimSpace(include), " ")
			paste(b, section(file, name), here)
		} else if code != "\n" && !strings.HasPrefix(code, "--") {
			b.WriteString(here + code)
		}
	}
}

// section returns a section of a file, or all of it. An unknown name panics at the start.
func section(file, name string) string {
	text, err := twins.ReadFile(file + ".lua")
	if err != nil {
		panic(err)
	}
	if name == "" {
		return string(text)
	}
	_, after, ok := strings.Cut(string(text), "\n--@ "+name+"\n")
	if !ok {
		panic("algo: no section " + name + " in " + file + ".lua")
	}
	body, _, _ := strings.Cut(after, "\n--@ ")
	return body + "\n"
}
