package main

import (
	"github.com/spf13/cobra"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// schemaURL is where the JSON Schema of the newest version is found.
const schemaURL = "https://raw.githubusercontent.com/stintdev/stint/main/docs/stint.schema.json"

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "print the JSON Schema of configuration files",
		Long: `Prints the JSON Schema (2020-12) of configuration files: rules, and the section server. Editors
use it to complete and explain fields. It accepts every file that stint accepts, and also some that
"stint rules check" refuses: it cannot check expressions, or compare parts of a file.`,
		Example: "  stint schema > stint.schema.json", Args: words(),
		RunE: func(c *cobra.Command, _ []string) error {
			rows := append(rules.Table(), schema.Row{Name: "server", Says: "The settings of the server, in one file only.", See: "settings.md",
				Value: schema.Value{Shape: schema.Shape{Kind: schema.KindMapping, Rows: config.Table}}})
			_, err := c.OutOrStdout().Write(schema.JSONSchema(schemaURL, "Stint's rules and settings", rows))
			return err
		},
	}
}
