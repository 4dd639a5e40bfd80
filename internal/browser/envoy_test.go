package browser

import (
	"os"
	"path/filepath"
	"testing"
)

// Rules of Envoy's files cannot be pushed. The page says so, shows them, and tries calls of Envoy.
func TestEnvoyFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 3}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "server: {envoy: {directory: "+dir+", listen: \"unix:"+filepath.Join(dir, "s")+"\"}}\nrules: [{name: client, key: client.ip, limits: [100 per 1m]}]\n")
	b := open(t)
	b.visit(s.admin + "/#/rules")
	b.see("page-rules", "Some are in Envoy's files")
	b.at("rules/edit")
	b.see("nopush", "Rules cannot be pushed here")
	b.gone("btn-push")
	b.fill("editor", "domain: shop\ndescriptors: []\n")
	b.see("check", "descriptors for Envoy")
	b.at("try")
	b.fill("input-paste", `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}`)
	b.see("parsed", "check request")
	b.click("btn-explain")
	b.see("explanation", "descriptor 1 finds it: user=ann")
}
