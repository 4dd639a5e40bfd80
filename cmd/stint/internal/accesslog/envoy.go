package accesslog

import (
	"fmt"
	"strings"
)

// compileEnvoy reads a format string of Envoy. It escapes nothing.
func compileEnvoy(format string) (*template, error) {
	var vars []variable
	texts := []string{""}
	format = strings.TrimSuffix(strings.TrimSuffix(strings.ReplaceAll(format, `\"`, `"`), "\n"), `\n`)
	for {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			texts[len(texts)-1] += format
			return newTemplate(vars, texts, true)
		}
		texts[len(texts)-1] += format[:i]
		format = format[i+1:]
		end := strings.IndexByte(format, '%')
		if open := strings.IndexByte(format, '('); open >= 0 && open < end { // an argument may have a %, too
			end = strings.Index(format, ")")
			if end >= 0 {
				if more := strings.IndexByte(format[end:], '%'); more >= 0 {
					end += more
				} else {
					end = -1
				}
			}
		}
		if end < 0 {
			return nil, fmt.Errorf("the format has no %% that ends %%%.60s", format)
		}
		name := format[:end]
		format = format[end+1:]
		if name == "" { // %%
			texts[len(texts)-1] += "%"
			continue
		}
		v := envoyOperator(name)
		v.name = "%" + name + "%"
		vars, texts = append(vars, v), append(texts, "")
	}
}

func envoyOperator(name string) variable {
	name, argument, _ := strings.Cut(name, "(")
	argument, _, _ = strings.Cut(argument, ")")
	switch name {
	case "START_TIME":
		return variable{field: field{role: arrived}, kind: free}
	case "RESPONSE_CODE":
		return variable{field: field{role: status}, kind: digits}
	case "DOWNSTREAM_REMOTE_ADDRESS":
		return variable{field: field{role: peer, rank: 1}, kind: word}
	case "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT":
		return variable{field: field{role: client, rank: 1}, kind: word}
	case "DOWNSTREAM_DIRECT_REMOTE_ADDRESS":
		return variable{field: field{role: peer}, kind: word}
	case "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT":
		return variable{field: field{role: client}, kind: word}
	case "REQ":
		switch strings.ToUpper(argument) {
		case ":METHOD":
			return variable{field: field{role: method}, kind: word}
		case ":PATH", "X-ENVOY-ORIGINAL-PATH?:PATH":
			return variable{field: field{role: target}}
		case ":AUTHORITY", "HOST":
			return variable{field: field{role: host}}
		}
		if strings.ContainsAny(argument, ":?") {
			return variable{}
		}
		return variable{field: headerField(argument)}
	case "RESP", "TRAILER", "DYNAMIC_METADATA", "FILTER_STATE", "UPSTREAM_TRANSPORT_FAILURE_REASON":
		return variable{}
	}
	return variable{kind: word}
}
