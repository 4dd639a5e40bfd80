// Command weigh prints the largest parts of a Linux program that has its symbols: make weigh.
package main

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// most is the number of modules with a row.
const most = 8

const ours = "github.com/stintdev/stint"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: weigh PROGRAM")
		os.Exit(2)
	}
	if err := weigh(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "weigh:", err)
		os.Exit(1)
	}
}

func weigh(name string) error {
	program, err := elf.Open(name)
	if err != nil {
		return err
	}
	defer program.Close()
	info, err := buildinfo.ReadFile(name)
	if err != nil {
		return err
	}
	symbols, err := program.Symbols()
	if err != nil {
		return fmt.Errorf("%s: %w; build it without -s", name, err)
	}
	var modules []string
	for _, m := range info.Deps {
		modules = append(modules, m.Path)
	}
	code := map[string]uint64{}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			code[moduleOf(s.Name, modules)] += s.Size
		}
	}
	fmt.Print("| part | MB |\n| --- | --- |\n")
	var all uint64
	for _, part := range []struct{ section, what string }{
		{".text", "code"}, {".gopclntab", "names and lines of functions, for traces of errors"}, {".rodata", "types, texts, embedded files"}, {".data", "variables"}, {".noptrdata", "variables without pointers"},
	} {
		if s := program.Section(part.section); s != nil {
			all += s.Size
			fmt.Printf("| %s | %s |\n", part.what, megabytes(s.Size))
		}
	}
	fmt.Printf("| **all** | %s |\n\n| code of | MB |\n| --- | --- |\n", megabytes(all))
	var rest uint64
	names := slices.SortedFunc(maps.Keys(code), func(a, b string) int { return cmp.Compare(code[b], code[a]) })
	for i, m := range names {
		if i < most {
			fmt.Printf("| %s | %s |\n", m, megabytes(code[m]))
		} else {
			rest += code[m]
		}
	}
	fmt.Printf("| %d others | %s |\n", max(0, len(names)-most), megabytes(rest))
	return nil
}

func megabytes(n uint64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }

// moduleOf is the module of a function, by its name in the symbol table.
func moduleOf(function string, modules []string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(function, "type:.eq."), "type:.hash.")
	name, _, _ = strings.Cut(name, "[") // of type arguments
	last := strings.LastIndex(name, "/") + 1
	word, _, _ := strings.Cut(name[last:], ".")
	folder := strings.ReplaceAll(name[:last]+word, "%2e", ".")
	if folder == "main" || folder == ours || strings.HasPrefix(folder, ours+"/") {
		return ours
	}
	longest := ""
	for _, m := range modules {
		if len(m) > len(longest) && (folder == m || strings.HasPrefix(folder, m+"/")) {
			longest = m
		}
	}
	return cmp.Or(longest, "the standard library")
}
