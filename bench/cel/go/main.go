// Evaluates and compiles the ten expressions of conformance/vectors/cel/exprs.json with cel-go as Kubernetes
// runs it: its environment for match conditions, with cost tracking and limit, and interruptible. Prints one line
// each: engine, expression, operation, nanoseconds (the minimum of several rounds).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

const (
	rounds = 7
	round  = 60 * time.Millisecond
)

// measure returns the minimum time of one call in nanoseconds.
func measure(call func()) float64 {
	batch := 1
	for {
		start := time.Now()
		for range batch {
			call()
		}
		if time.Since(start) >= round {
			break
		}
		batch *= 2
	}
	best := 0.0
	for i := range rounds {
		start := time.Now()
		for range batch {
			call()
		}
		if took := float64(time.Since(start).Nanoseconds()) / float64(batch); i == 0 || took < best {
			best = took
		}
	}
	return best
}

func read(dir, name string, into any) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	vectors := os.Args[1]
	var pod, request map[string]any
	var expressions map[string]string
	read(vectors, "pod.json", &pod)
	read(vectors, "req.json", &request)
	read(vectors, "exprs.json", &expressions)

	env := environment.MustBaseEnvSet(version.MajorMinor(1, 36))
	compiler := plugincel.NewCompiler(env)
	declared := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	variables := map[string]any{"object": pod, "oldObject": nil, "request": request, "namespaceObject": nil}

	names := make([]string, 0, len(expressions))
	for name := range expressions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		condition := &matchconditions.MatchCondition{Expression: expressions[name]}
		compiled := compiler.CompileCELExpression(condition, declared, environment.StoredExpressions)
		if compiled.Error != nil {
			fmt.Fprintln(os.Stderr, name, compiled.Error)
			os.Exit(1)
		}
		evaluation := measure(func() {
			_, _, _ = compiled.Program.ContextEval(context.Background(), variables)
		})
		fmt.Printf("cel-go\t%s\tevaluate\t%.0f\n", name, evaluation)
		compilation := measure(func() {
			compiler.CompileCELExpression(condition, declared, environment.StoredExpressions)
		})
		fmt.Printf("cel-go\t%s\tcompile\t%.0f\n", name, compilation)
	}
}
