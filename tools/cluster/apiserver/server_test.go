//go:build cluster

package apiserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// kubernetes is the version that the API server says it is. Its module does not know it.
const kubernetes = "v1.36.3"

// A cluster is an API server on loopback with a client of it that may do everything.
type cluster struct {
	programs string // the folder of kube-apiserver, server (etcd) and helm
	ca       string // the file
	config   *rest.Config
	client   dynamic.Interface
	kinds    *restmapper.DeferredDiscoveryRESTMapper
	warnings warnings
}

// warnings are those of the API server, such as about a Deployment whose pods it would refuse.
type warnings struct {
	mu   sync.Mutex
	text []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

// take returns the warnings since the last call.
func (w *warnings) take() (text []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text, w.text = w.text, nil
	return text
}

// start builds the programs, which takes minutes the first time, and starts a cluster for one test.
func start(t *testing.T) *cluster {
	t.Helper()
	folder := t.TempDir()
	c := &cluster{programs: folder}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", folder+"/",
		"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion="+kubernetes,
		"k8s.io/kubernetes/cmd/kube-apiserver", "go.etcd.io/etcd/server/v3", "helm.sh/helm/v4/cmd/helm")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	etcd, peer := local("http", redistest.FreePort(t)), local("http", redistest.FreePort(t))
	c.run(t, "server", "--data-dir="+filepath.Join(folder, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	await.Until(t, "etcd is healthy", func() bool {
		answer, err := http.Get(etcd + "/health")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})

	key, tokens, token := filepath.Join(folder, "accounts.pem"), filepath.Join(folder, "tokens.csv"), rand.Text()
	write(t, key, accountsKey(t))
	write(t, tokens, []byte(token+",tester,tester,system:masters\n"))
	port := redistest.FreePort(t)
	c.run(t, "kube-apiserver", "--etcd-servers="+etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/16",
		"--cert-dir="+folder, "--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key, "--service-account-signing-key-file="+key)
	c.ca = filepath.Join(folder, "apiserver.crt") // the server makes it, and signs it itself
	c.config = &rest.Config{Host: local("https", port), BearerToken: token, QPS: -1, WarningHandler: &c.warnings,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.ca}}
	await.Until(t, "the API server is ready", func() bool { return ready(t.Context(), c.config) })
	c.connect(t)
	return c
}

func local(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

func (c *cluster) connect(t *testing.T) {
	t.Helper()
	about, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	c.kinds = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(about))
	if c.client, err = dynamic.NewForConfig(c.config); err != nil {
		t.Fatal(err)
	}
}

func ready(ctx context.Context, config *rest.Config) bool {
	about, err := discovery.NewDiscoveryClientForConfig(config) // fails until the certificate is there
	return err == nil && about.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
}

// run starts a server, which ends with the test. What it logs is shown if the test fails.
func (c *cluster) run(t *testing.T, program string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(filepath.Join(c.programs, program), args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			lines := strings.Split(log.String(), "\n")
			t.Logf("%s:\n%s", program, strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	})
}

// accountsKey signs the tokens of service accounts.
func accountsKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// helm runs helm, and returns what it prints. Whatever it says on standard error, such as a warning of the
// API server, fails the test.
func (c *cluster) helm(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.programs, "helm"), append(args, "--namespace="+namespace)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+os.DevNull, "HELM_KUBEAPISERVER="+c.config.Host,
		"HELM_KUBETOKEN="+c.config.BearerToken, "HELM_KUBECAFILE="+c.ca,
		"HELM_CACHE_HOME="+c.programs, "HELM_CONFIG_HOME="+c.programs, "HELM_DATA_HOME="+c.programs)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil || said.Len() > 0 {
		t.Errorf("helm %s: %v\n%s", strings.Join(args, " "), err, said.String())
	}
	return string(out)
}
