// Package apiserver checks deploy with what a cluster has first: a Kubernetes API server, etcd and helm,
// built of their Go modules. There are no controllers and no nodes, so nothing is scheduled or run: objects
// are validated, admitted and stored as in a cluster. "make cluster" runs it, by the tag cluster, so that lint and
// the tests of all else compile none of this.
package apiserver
