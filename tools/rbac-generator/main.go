// Command rbac-generator writes the default roles and bindings of every cluster as compact JSON. See
// README.md.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// Labels and annotations common to all of them, which the server adds.
var (
	commonLabel      = "kubernetes.io/bootstrapping"
	commonAnnotation = rbacv1.AutoUpdateAnnotationKey
)

// object is one role or binding without the fields derived from its list.
type object struct {
	Namespace   string                  `json:"namespace,omitempty"`
	Name        string                  `json:"name"`
	Labels      map[string]string       `json:"labels,omitempty"`
	Rules       []rbacv1.PolicyRule     `json:"rules,omitempty"`
	Aggregation *rbacv1.AggregationRule `json:"aggregationRule,omitempty"`
	Role        *rbacv1.RoleRef         `json:"roleRef,omitempty"`
	Subjects    []rbacv1.Subject        `json:"subjects,omitempty"`
}

type policy struct {
	ClusterRoles        []object `json:"clusterroles"`
	ClusterRoleBindings []object `json:"clusterrolebindings"`
	Roles               []object `json:"roles"`
	RoleBindings        []object `json:"rolebindings"`
}

func labels(meta metav1.ObjectMeta) map[string]string {
	own := map[string]string{}
	common := false
	for key, value := range meta.Labels {
		if key == commonLabel && value == "rbac-defaults" {
			common = true
			continue
		}
		own[key] = value
	}
	if !common || len(meta.Annotations) != 1 || meta.Annotations[commonAnnotation] != "true" {
		panic(fmt.Sprintf("%s has other labels or annotations than all others", meta.Name))
	}
	return own
}

func sorted(objects []object) []object {
	sort.SliceStable(objects, func(a, b int) bool {
		if objects[a].Namespace != objects[b].Namespace {
			return objects[a].Namespace < objects[b].Namespace
		}
		return objects[a].Name < objects[b].Name
	})
	return objects
}

func collect() policy {
	var all policy
	for _, role := range append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...) {
		all.ClusterRoles = append(all.ClusterRoles, object{
			Name: role.Name, Labels: labels(role.ObjectMeta), Rules: role.Rules, Aggregation: role.AggregationRule,
		})
	}
	for _, binding := range append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...) {
		all.ClusterRoleBindings = append(all.ClusterRoleBindings, object{
			Name: binding.Name, Labels: labels(binding.ObjectMeta), Role: &binding.RoleRef, Subjects: binding.Subjects,
		})
	}
	for namespace, roles := range bootstrappolicy.NamespaceRoles() {
		for _, role := range roles {
			all.Roles = append(all.Roles, object{
				Namespace: namespace, Name: role.Name, Labels: labels(role.ObjectMeta), Rules: role.Rules,
			})
		}
	}
	for namespace, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, binding := range bindings {
			all.RoleBindings = append(all.RoleBindings, object{
				Namespace: namespace, Name: binding.Name, Labels: labels(binding.ObjectMeta),
				Role: &binding.RoleRef, Subjects: binding.Subjects,
			})
		}
	}
	sorted(all.ClusterRoles)
	sorted(all.ClusterRoleBindings)
	sorted(all.Roles)
	sorted(all.RoleBindings)
	return all
}

// lines writes one object per line, so that a new version is a readable diff.
func lines(out *bytes.Buffer, name string, objects []object, last bool) error {
	fmt.Fprintf(out, "%q:[\n", name)
	for index, one := range objects {
		text, err := json.Marshal(one)
		if err != nil {
			return err
		}
		out.Write(text)
		if index+1 < len(objects) {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
	}
	out.WriteByte(']')
	if !last {
		out.WriteByte(',')
	}
	out.WriteByte('\n')
	return nil
}

func run(output string) error {
	all := collect()
	var out bytes.Buffer
	out.WriteString("{\n")
	for _, part := range []struct {
		name    string
		objects []object
		last    bool
	}{
		{"clusterroles", all.ClusterRoles, false},
		{"clusterrolebindings", all.ClusterRoleBindings, false},
		{"roles", all.Roles, false},
		{"rolebindings", all.RoleBindings, true},
	} {
		if err := lines(&out, part.name, part.objects, part.last); err != nil {
			return err
		}
	}
	out.WriteString("}\n")
	return os.WriteFile(output, out.Bytes(), 0o644)
}

func main() {
	output := flag.String("output", "rbac.json", "where to write")
	flag.Parse()
	if err := run(*output); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
