package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The values in docs/cluster.md, each block added to those before it, make valid objects, and so do the flags
// --set in the page.
func TestPageValues(t *testing.T) {
	t.Parallel()
	text := page(t)
	r := rendering{chart: chart, name: "stint", namespace: "default"}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1)
	for i, block := range blocks {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("%d.yaml", i))
		if err := os.WriteFile(file, []byte(block[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		r.values = append(r.values, file)
		validate(t, r.must(t).objects)
	}
	flags := regexp.MustCompile(`--set (\S+)`).FindAllStringSubmatch(text, -1)
	for _, flag := range flags {
		validate(t, rendering{chart: chart, name: "stint", namespace: "default", set: []string{flag[1]}}.must(t).objects)
	}
	if len(blocks) < 2 || len(flags) < 1 {
		t.Errorf("%d blocks, %d flags", len(blocks), len(flags))
	}
}

// The program takes the rules of the page, which the schema alone does not say of expressions.
func TestPageRules(t *testing.T) {
	t.Parallel()
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(page(t))
	if block == nil {
		t.Fatal("there is no block of values")
	}
	values, err := read(block[1])
	if err != nil {
		t.Fatal(err)
	}
	rules, err := yaml.Marshal(values["config"])
	if err != nil || values["config"] == nil {
		t.Fatalf("the first block has no config: %v", err)
	}
	path := filepath.Join(t.TempDir(), "stint.yaml")
	if err := os.WriteFile(path, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", "./cmd/stint", "rules", "check", path)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Helm's errors in the page are those that it has. … stands for anything.
func TestPageErrors(t *testing.T) {
	t.Parallel()
	_, err := rendering{chart: chart, name: "stint", namespace: "default", set: []string{
		"gateway.upstream=http://shop", "config.rules[0].name=login", "config.rules[0].limits[0]=10 pro 1m", "config.server.log.level=loud",
	}}.render()
	if err == nil {
		t.Fatal("wrong values are taken")
	}
	lines := regexp.MustCompile("(?m)^- at '.*$").FindAllString(page(t), -1)
	for _, line := range lines {
		parts := strings.Split(line, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		if !regexp.MustCompile("(?m)^ *" + strings.Join(parts, ".*") + "$").MatchString(err.Error()) {
			t.Errorf("the page says %q, and helm says %v", line, err)
		}
	}
	if len(lines) < 2 {
		t.Errorf("%d errors", len(lines))
	}
}

// The commands of kubectl in the page and in the notes after an install name objects and ports that the chart
// makes, and Secrets that the values of the page read.
func TestPageCommands(t *testing.T) {
	t.Parallel()
	out := rendering{chart: chart, name: "stint", namespace: "default", set: []string{"gateway.upstream=http://shop"}}.must(t)
	made := sets.New[string]()
	for _, o := range out.objects {
		switch o.kind() {
		case "Deployment":
			made.Insert("deploy/" + o.name())
		case "Service":
			made.Insert("service/" + o.name())
		}
	}
	made.Insert(services(out.objects)...)
	about := regexp.MustCompile(`kubectl (?:-n \S+ )?(?:exec|logs|port-forward|rollout restart) (?:--\S+ )*(deploy|service)/([a-z-]+)(?: \d+:(\d+))?`)
	for what, text := range map[string]string{"the page": page(t), "the notes": out.notes} {
		commands := about.FindAllStringSubmatch(text, -1)
		for _, c := range commands {
			if !made.Has(c[1] + "/" + c[2]) {
				t.Errorf("%s: %s: the chart makes %v", what, c[0], sets.List(made))
			}
			if c[1] == "service" && !made.Has(c[2]+":"+c[3]) {
				t.Errorf("%s: %s: the ports are %v", what, c[0], sets.List(made))
			}
		}
		if len(commands) < 2 {
			t.Errorf("%s has %d commands", what, len(commands))
		}
	}
	secrets := regexp.MustCompile(`kubectl create secret generic (\S+) --from-literal=(\w+)=`).FindAllStringSubmatch(page(t), -1)
	for _, s := range secrets {
		if reads := fmt.Sprintf("secret: {name: %s, files: {password_file: %s}}", s[1], s[2]); !strings.Contains(page(t), reads) {
			t.Errorf("%s: no values have %s", s[0], reads)
		}
	}
	if len(secrets) == 0 {
		t.Error("no Secret is made")
	}
}

// The Services of the page are those of the chart, with all doors open, and the alerts are those of its file.
func TestPageNames(t *testing.T) {
	t.Parallel()
	r := rendering{chart: chart, name: "stint", namespace: "default", set: []string{
		"gateway.upstream=http://shop", "check.enabled=true", "config.server.check.open=true", "envoy.enabled=true",
		"admin.enabled=true", "config.server.admin.tokens[0].name=a", "config.server.admin.tokens[0].scope=read", "config.server.admin.tokens[0].file=/a",
	}}
	ports := sets.New[string]()
	for _, o := range r.must(t).objects {
		if o.kind() != "Service" {
			continue
		}
		spec := o.fields["spec"].(map[string]any)
		for _, p := range spec["ports"].([]any) {
			ports.Insert(fmt.Sprintf("%s %v", o.name(), p.(map[string]any)["port"]))
		}
	}
	_, table, _ := strings.Cut(page(t), "| Service | port |")
	table, _, _ = strings.Cut(table, "\n\n")
	said, service := sets.New[string](), ""
	for _, row := range regexp.MustCompile("(?m)^\\| (?:`([a-z-]+)` )?\\| ([0-9]+):").FindAllStringSubmatch(table, -1) {
		if row[1] != "" {
			service = row[1]
		}
		said.Insert(service + " " + row[2])
	}
	if !said.Equal(ports) {
		t.Errorf("the page says %v, and the chart makes %v", said.UnsortedList(), ports.UnsortedList())
	}
	alerts, err := os.ReadFile(chart + "/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Stint[A-Z][A-Za-z]+)`").FindAllStringSubmatch(page(t), -1)
	for _, alert := range named {
		if !strings.Contains(string(alerts), `alert: "`+alert[1]+`"`) {
			t.Errorf("there is no alert %s", alert[1])
		}
	}
	if len(named) < 2 {
		t.Errorf("%d alerts are named", len(named))
	}
}

// The figures of the page are those that make bench measured.
func TestPageFigures(t *testing.T) {
	t.Parallel()
	file, err := os.Open("../../docs/benchmarks.raw.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	type sum struct{ cpu, calls, bytes float64 }
	measured := map[string]*sum{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var row struct {
			Table, Subject                  string
			CPU, Calls, Errors, BytesPerKey float64
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		name := row.Table + ": " + row.Subject
		if measured[name] == nil {
			measured[name] = &sum{bytes: row.BytesPerKey}
		}
		measured[name].cpu += row.CPU
		measured[name].calls += row.Calls - row.Errors
	}
	micros := func(name string) float64 {
		s := measured[name]
		if s == nil || s.calls == 0 {
			t.Fatalf("nothing is measured of %s", name)
		}
		return s.cpu / s.calls * 1e6
	}
	const gateway, check, list = "servers: Stint gateway", "servers: Stint /v1/check", "servers: Stint /v1/check, a list of 100"
	const one, three = ": Stint token bucket", ": Stint, three limits at once"
	rounded := func(v float64) string { return fmt.Sprintf("%.2g", v) }
	for _, row := range []string{
		fmt.Sprintf("| gateway | %.1f µs | %.2f | %s", micros(gateway), micros(gateway)/micros("servers: bare ReverseProxy, buffers reused"), rate(micros(gateway))),
		fmt.Sprintf("| check API, one at a time | %.1f µs | %.2f | %s", micros(check), micros(check)/micros("servers: empty handler"), rate(micros(check))),
		fmt.Sprintf("| check API, lists of 100 | %.1f µs |", micros(list)/100),
		fmt.Sprintf("| memory for a key | %.0f bytes | %.0f bytes |", measured["redis-keys"+one].bytes, measured["redis-keys"+three].bytes),
		fmt.Sprintf("| CPU a decision, busy instances | %.2f–%.0f µs | %.2f–%.0f µs |", micros("redis-hot"+one), micros("redis-keys"+one), micros("redis-hot"+three), micros("redis-keys"+three)),
		fmt.Sprintf("| CPU a decision, a single caller | %s µs | %s µs |", rounded(micros("redis-lone"+one)), rounded(micros("redis-lone"+three))),
	} {
		if !strings.Contains(page(t), row) {
			t.Errorf("the page does not say %q", row)
		}
	}
}

// rate is what one processor does in a second, in thousands.
func rate(micros float64) string {
	return fmt.Sprintf("%d,000", int(math.Floor(1000/micros)))
}

// The files that the heads of deploy/values are to be used with, by -f, make valid objects with them.
func TestPageHeads(t *testing.T) {
	t.Parallel()
	for name := range uses(t) {
		if name == "the least" {
			continue
		}
		head, err := os.ReadFile("../../deploy/values/" + name)
		if err != nil {
			t.Fatal(err)
		}
		r := rendering{chart: chart, name: "stint", namespace: "default"}
		for _, file := range regexp.MustCompile(`-f (deploy/values/\S+)`).FindAllStringSubmatch(string(head), -1) {
			r.values = append(r.values, "../../"+file[1])
		}
		if !slices.Contains(r.values, "../../deploy/values/"+name) {
			t.Errorf("%s: its head does not say how to use it: %q", name, r.values)
			continue
		}
		validate(t, r.must(t).objects)
	}
}

// Files that the page, the values and the examples name are there.
func TestPageFiles(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\bdeploy/(chart|compose|examples|manifests|values)[a-z/-]*(\.yaml)?`)
	files, err := filepath.Glob("../../deploy/*/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	files = slices.Concat(files, []string{"../../docs/cluster.md", "../../examples/README.md", "../../docs/install.md"})
	count := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range named.FindAllString(string(text), -1) {
			count++
			if _, err := os.Stat("../../" + strings.TrimSuffix(name, "/")); err != nil {
				t.Errorf("%s: there is no %s", file, name)
			}
		}
	}
	if count < 15 {
		t.Errorf("%d are named", count)
	}
}
