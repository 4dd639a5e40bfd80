package expr

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/operators"
)

// Declarations are all names that expressions may use.
type Declarations struct {
	Variables []Declaration // in the order of the documentation
	Functions []Declaration // by name
	Operators []string      // as they are written
	Macros    []string      // such as has
}

// Declaration is a variable or a function. Forms are the type of a variable, or how a function may be
// called, with types for arguments: string.split(string) → list(string).
type Declaration struct {
	Name  string
	Forms []string
	// After means that only a NumberAfter may use it. A NumberAfter may use nothing else.
	After bool
}

// Declared returns what the language of expressions declares.
func Declared() (all Declarations) {
	for _, v := range variables {
		all.Variables = append(all.Variables, Declaration{v.name, []string{typeName(v.kind)}, v.known == after})
	}
	functions := language().Functions()
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if sign, isOperator := operators.FindReverse(name); isOperator {
			all.Operators = append(all.Operators, cmp.Or(sign, strings.ReplaceAll(name, "_", ""))) // "_[_]" has no sign
		} else if strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz.0123456789") == "" && name != "in" {
			all.Functions = append(all.Functions, Declaration{Name: name, Forms: formsOf(functions[name])})
		}
	}
	slices.Sort(all.Operators)
	all.Operators = slices.Compact(all.Operators) // - is two
	for _, m := range language().Macros() {
		if !slices.Contains(all.Macros, m.Function()) {
			all.Macros = append(all.Macros, m.Function())
		}
	}
	return all
}

func formsOf(f *decls.FunctionDecl) (forms []string) {
	for _, o := range f.OverloadDecls() {
		name, args := f.Name(), make([]string, len(o.ArgTypes()))
		for i, t := range o.ArgTypes() {
			args[i] = typeName(t)
		}
		if o.IsMemberFunction() {
			name, args = args[0]+"."+name, args[1:]
		}
		forms = append(forms, fmt.Sprintf("%s(%s) → %s", name, strings.Join(args, ", "), typeName(o.ResultType())))
	}
	return forms
}

func typeName(t *cel.Type) string {
	return strings.NewReplacer("google.protobuf.Timestamp", "timestamp", "google.protobuf.Duration", "duration").Replace(cel.FormatCELType(t))
}
