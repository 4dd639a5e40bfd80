package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// A module has definitions of APIs. It is data here: nothing of it is compiled, so it is not in go.mod, and
// the hash, as in a go.sum, is in definitions.json, which module apiserver reads, too. "go mod download -json
// MODULE" prints that of another version.
type module struct {
	Module string // with its version
	Hash   string
	Groups []string // those of its APIs, none for Kubernetes itself
	Files  []string // patterns of files with CustomResourceDefinitions
}

//go:embed definitions.json
var definitions []byte

// modules begin with Kubernetes itself.
var modules = sync.OnceValue(func() (all []module) {
	if err := json.Unmarshal(definitions, &all); err != nil || all[0].Module != "k8s.io/kubernetes@"+kubernetes {
		panic(fmt.Sprint("definitions.json: ", err))
	}
	return all
})

// folders are the folders of modules that were fetched, by path.
var folders sync.Map

// folder fetches m, once in a process, and returns where it is.
func (m module) folder() (string, error) {
	get, _ := folders.LoadOrStore(m.Module, sync.OnceValues(m.fetch))
	return get.(func() (string, error))()
}

func (m module) fetch() (folder string, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", m.Module)
	cmd.Dir = os.TempDir() // in no module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GONOSUMDB=*")
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	switch wrong := json.Unmarshal(out, &got); {
	case got.Error != "":
		return "", fmt.Errorf("%s: %s", m.Module, got.Error)
	case err != nil || wrong != nil:
		return "", fmt.Errorf("%s: %v, %v", m.Module, err, wrong)
	case got.Sum != m.Hash:
		return "", fmt.Errorf("%s has the hash %s: want %s", m.Module, got.Sum, m.Hash)
	}
	return got.Dir, nil
}

// moduleOf is the module with the definitions of an API group.
func moduleOf(group string) module {
	i := slices.IndexFunc(modules(), func(m module) bool { return slices.Contains(m.Groups, group) })
	return modules()[max(i, 0)]
}

// A module that is not the pinned one is refused.
func TestModuleHash(t *testing.T) {
	t.Parallel()
	m := moduleOf("traefik.io")
	if folder, err := m.folder(); err != nil || !filepath.IsAbs(folder) {
		t.Errorf("in %q, %v", folder, err)
	}
	m.Hash = "h1:"
	if folder, err := m.fetch(); err == nil {
		t.Errorf("the module without its hash is in %s", folder)
	}
}
