package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// usage is the help of a command without its first paragraphs. Cobra would take a template, which would
// keep the linker from leaving out methods that nobody calls: a fifth of the program.
func usage(c *cobra.Command) string {
	var b strings.Builder
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "Usage:\n  %s COMMAND", c.CommandPath())
	} else {
		fmt.Fprintf(&b, "Usage:\n  %s", c.UseLine())
	}
	if c.Example != "" {
		fmt.Fprintf(&b, "\n\nExamples:\n%s", c.Example)
	}
	for i, g := range c.Groups() {
		if i == 0 {
			b.WriteString("\n")
		}
		listCommands(&b, c, g.Title, g.ID)
	}
	switch {
	case c.HasAvailableSubCommands():
		if len(c.Groups()) == 0 {
			b.WriteString("\n")
			listCommands(&b, c, "Commands", "")
		}
		fmt.Fprintf(&b, "\nSee \"%s COMMAND --help\" for each command.\n", c.CommandPath())
	case c.HasAvailableLocalFlags():
		const width = 100
		fmt.Fprintf(&b, "\n\nFlags:\n%s\n", strings.TrimRight(c.LocalFlags().FlagUsagesWrapped(width), " \n"))
	}
	return b.String()
}

// listCommands writes the commands of a group below its title.
func listCommands(b *strings.Builder, c *cobra.Command, title, group string) {
	fmt.Fprintf(b, "\n%s:", title)
	for _, sub := range c.Commands() {
		if sub.GroupID == group {
			fmt.Fprintf(b, "\n  %-*s  %s", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
	b.WriteString("\n")
}
