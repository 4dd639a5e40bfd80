package main

import (
	"fmt"
	"runtime"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/stintdev/stint/server/rules"
)

const (
	celModule     = "cel.dev/cel-go"
	celAloneRow   = "one program of cel-go"
	celOperations = "cel-go in turn, by operation"
	celPatterns   = "cel-go in turn, by regular expression"
)

func celEnv() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("operation", cel.StringType), cel.Variable("path", cel.StringType))
}

// celProgram is compiled once, as cel-go advises: a constant regular expression, too.
func celProgram(env *cel.Env, expression string) (cel.Program, error) {
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	return env.Program(checked, cel.EvalOptions(cel.OptOptimize))
}

func celPrograms(expression string, n int) ([]cel.Program, error) {
	env, err := celEnv()
	if err != nil {
		return nil, err
	}
	all := make([]cel.Program, n)
	for i := range all {
		if all[i], err = celProgram(env, fmt.Sprintf(expression, i)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// celInputs are requests in turn, for n rules.
func celInputs(n int) []map[string]any {
	all := make([]map[string]any, requestsInTurn)
	for j, i := range numbers(n) {
		all[j] = map[string]any{"operation": fmt.Sprint("o", i), "path": fmt.Sprint("/o", i)}
	}
	return all
}

// celAlone evaluates the one condition that a map of rules by operation would still have.
func celAlone() (*ruleRow, error) {
	programs, err := celPrograms(`operation == "o%d"`, 1)
	if err != nil {
		return nil, err
	}
	inputs := celInputs(1)
	return newRuleRow(celAloneRow, floor, 1, func(at int) error {
		if v, _, err := programs[0].Eval(inputs[at]); err != nil || v != types.True {
			return fmt.Errorf("%v (%v)", v, err)
		}
		return nil
	}), nil
}

// celInTurn evaluates the conditions of all n rules, as programs do that use cel-go without an index.
func celInTurn(name, expression string, n int) (*ruleRow, error) {
	programs, err := celPrograms(expression, n)
	if err != nil {
		return nil, err
	}
	inputs := celInputs(n)
	return newRuleRow(name, peer, n, func(at int) error {
		activation, err := cel.NewActivation(inputs[at])
		if err != nil {
			return err
		}
		applied := 0
		for _, p := range programs {
			v, _, err := p.Eval(activation)
			if err != nil {
				return err
			}
			if v == types.True {
				applied++
			}
		}
		if applied != 1 {
			return fmt.Errorf("%d rules apply", applied)
		}
		return nil
	}), nil
}

// A ruleLoad makes a file of n rules ready for requests.
type ruleLoad struct {
	n           int
	stint       bool // else cel-go
	took, bytes []float64
}

// measureLoads loads files of so many rules, by operation, and compiles the same conditions with cel-go.
func (r *ruleRun) measureLoads(sizes []int) error {
	for _, n := range sizes {
		r.loads = append(r.loads, &ruleLoad{n: n, stint: true}, &ruleLoad{n: n})
	}
	for round := range min(r.Rounds, 5) { // they take long
		for j := range r.loads {
			if err := r.loads[(j+round)%len(r.loads)].once(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *ruleLoad) once() (err error) {
	file := ruleFile(ruleWays[0].matches(l.n))
	before, start := held(), time.Now()
	var loaded any
	if l.stint {
		loaded, err = rules.Parse("rules.yaml", file)
	} else {
		loaded, err = celPrograms(`operation == "o%d"`, l.n)
	}
	l.took = append(l.took, float64(time.Since(start)))
	l.bytes = append(l.bytes, held()-before)
	runtime.KeepAlive(loaded)
	runtime.KeepAlive(file)
	return err
}
