package rules

import (
	"fmt"

	"github.com/stintdev/stint/internal/errorformat"
	"github.com/stintdev/stint/internal/schema"
)

func messageRows() schema.Rows {
	says := [anyText]string{
		limitedText:     "For requests that a limit refuses.",
		warnedText:      "For refusals that warn, because of warn_after.",
		bannedText:      "For the request that leads to a ban; without still_banned, for later ones, too.",
		stillBannedText: "For further requests while a ban runs.",
		byHandText:      "For requests banned by an operator.",
	}
	examples := [anyText]string{
		limitedText:     `"Try again in {retry_after}."`,
		warnedText:      `{en: "{violations} of {ban_after}: try again in {retry_after}."}`,
		bannedText:      `"Locked for {ban_left}."`,
		stillBannedText: `"Still locked for {ban_left}."`,
		byHandText:      "Write to help@example.com.",
	}
	var rows schema.Rows
	for place, name := range messageFields[:anyText] {
		rows = append(rows, schema.Row{Name: name, Value: shaped(messageShape), Example: examples[place], See: "rules.md#messages", Says: says[place]})
	}
	return rows
}

// refusalRows are the fields of refusal, and errorRows those of errors.
func refusalRows() schema.Rows {
	body := mappingShape(func() schema.Rows {
		return schema.Rows{
			{Name: "text", Value: shaped(lineShape), Required: true, Example: `'{"errors": [{"message": "{message}"}]}'`, See: "rules.md#the-format-of-refusals",
				Says: bodySays},
			{Name: "status", Value: shaped(numberShape(200, 200).OrElse(numberShape(errorformat.LeastStatus, errorformat.MostStatus))), Computed: "status of refusal", Example: "200", See: "rules.md#the-format-of-refusals",
				Says: "The status of this body."},
		}
	})
	return append(schema.Rows{
		{Name: "status", Value: shaped(numberShape(errorformat.LeastStatus, errorformat.MostStatus)), Default: "429", Example: "420", See: "rules.md#the-format-of-refusals",
			Says: "The status of refusals."},
		{Name: "grpc", Value: shaped(mappingShape(grpcRows)), Example: `{code: unavailable, message: "{message}"}`, See: "rules.md#the-format-of-refusals",
			Says: "The status of refusals to gRPC requests."},
	}, formatRows(lineShape.OrElse(body))...)
}

func errorRows() schema.Rows { return formatRows(lineShape) }

const bodySays = "The body, with placeholders such as {message}."

func formatRows(body schema.Shape) schema.Rows {
	return schema.Rows{
		{Name: "headers", Value: shaped(namesShape(schema.Token, lineShape)), Example: `{X-Error-Code: "{outcome}"}`, See: "rules.md#the-format-of-refusals",
			Says: fmt.Sprintf("Headers to add, %s, of at most %d bytes, with placeholders.", upTo(errorformat.MaxHeaders), errorformat.MaxText)},
		{Name: "bodies", Value: shaped(namesShape("", body)), Example: `{text/html: "<p>{message}</p>"}`, See: "rules.md#the-format-of-refusals",
			Says: fmt.Sprintf("Bodies by media type, %s, of at most %d bytes, with placeholders.", upTo(errorformat.MaxBodies), errorformat.MaxBody)},
	}
}

func grpcRows() schema.Rows {
	return schema.Rows{
		{Name: "code", Value: shaped(schema.Words(errorformat.Codes()...)), Default: "resource_exhausted", Example: "unavailable", See: "rules.md#the-format-of-refusals",
			Says: "The code of the status."},
		{Name: "message", Value: shaped(lineShape), Default: `"{message}"`, Example: "Slow down.", See: "rules.md#the-format-of-refusals",
			Says: "The message of the status, with placeholders."},
	}
}
