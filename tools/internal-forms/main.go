// Command internal-forms writes crates/kinds/src/typed/internal/tables.rs: how kube-apiserver's internal
// types, which appear in errors, are converted from versioned objects.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"reflect"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/networking"
	"k8s.io/kubernetes/pkg/apis/rbac"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/apis/storage"
)

// roots are the types that errors print entirely, with their versioned types.
var roots = []struct{ internal, versioned any }{
	{core.PodTemplateSpec{}, corev1.PodTemplateSpec{}},
	{core.PersistentVolumeSource{}, corev1.PersistentVolumeSource{}},
	{core.PersistentVolumeClaimSpec{}, corev1.PersistentVolumeClaimSpec{}},
	{core.ObjectReference{}, corev1.ObjectReference{}},
	{core.EventSource{}, corev1.EventSource{}},
	{core.ServicePort{}, corev1.ServicePort{}},
	{core.Taint{}, corev1.Taint{}},
	{core.NodeAddress{}, corev1.NodeAddress{}},
	{core.VolumeNodeAffinity{}, corev1.VolumeNodeAffinity{}},
	{batch.PodFailurePolicy{}, batchv1.PodFailurePolicy{}},
	{batch.SuccessPolicy{}, batchv1.SuccessPolicy{}},
	{networking.ParentReference{}, networkingv1.ParentReference{}},
	{rbac.RoleRef{}, rbacv1.RoleRef{}},
	{resource.ResourceClaimSpec{}, resourcev1.ResourceClaimSpec{}},
	{resource.ResourceClaimTemplateSpec{}, resourcev1.ResourceClaimTemplateSpec{}},
	{resource.AllocationResult{}, resourcev1.AllocationResult{}},
	{resource.DeviceAttribute{}, resourcev1.DeviceAttribute{}},
	{storage.VolumeAttachmentSpec{}, storagev1.VolumeAttachmentSpec{}},
	{storage.CSINodeDriver{}, storagev1.CSINodeDriver{}},
}

// moved are internal fields with another path in the versioned type; ^ is the enclosing object.
var moved = map[string]string{
	"PodSecurityContext.HostNetwork":           "^hostNetwork",
	"PodSecurityContext.HostPID":               "^hostPID",
	"PodSecurityContext.HostIPC":               "^hostIPC",
	"PodSecurityContext.ShareProcessNamespace": "^shareProcessNamespace",
	"PodSecurityContext.HostUsers":             "^hostUsers",
	"EphemeralContainer.TargetContainerName":   "targetContainerName",
}

type field struct {
	name, source, form string
	omit               bool
}

type table struct {
	structs []string
	names   map[reflect.Type]int
	fields  [][]field
	forms   []string
	formIDs map[string]int
}

var (
	quantity = reflect.TypeOf(apiresource.Quantity{})
	instant  = reflect.TypeOf(metav1.Time{})
	number   = reflect.TypeOf(intstr.IntOrString{})
	raw      = reflect.TypeOf(runtime.RawExtension{})
)

func (t *table) form(text string) int {
	if id, ok := t.formIDs[text]; ok {
		return id
	}
	t.formIDs[text] = len(t.forms)
	t.forms = append(t.forms, text)
	return t.formIDs[text]
}

func (t *table) of(in, out reflect.Type) string {
	if out != nil && out.Kind() == reflect.Pointer && in.Kind() != reflect.Pointer {
		out = out.Elem()
	}
	elem := func() reflect.Type {
		if out == nil || out.Kind() != in.Kind() {
			return out
		}
		return out.Elem()
	}
	switch in {
	case quantity:
		return "Quantity"
	case instant:
		return "Time"
	case number:
		return "IntOrString"
	case raw:
		return "Raw"
	}
	switch in.Kind() {
	case reflect.String:
		return "Text"
	case reflect.Bool:
		return "Bool"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8:
		return "Int"
	case reflect.Pointer:
		return fmt.Sprintf("Pointer(%d)", t.form(t.of(in.Elem(), elem())))
	case reflect.Slice:
		return fmt.Sprintf("List(%d)", t.form(t.of(in.Elem(), elem())))
	case reflect.Map:
		return fmt.Sprintf("Map(%d)", t.form(t.of(in.Elem(), elem())))
	case reflect.Struct:
		return fmt.Sprintf("Struct(%d)", t.add(in, out))
	}
	log.Fatalf("no form for %v", in)
	return ""
}

func (t *table) add(in, out reflect.Type) int {
	if id, ok := t.names[in]; ok {
		return id
	}
	id := len(t.structs)
	t.names[in] = id
	t.structs = append(t.structs, in.Name())
	t.fields = append(t.fields, nil)
	rows := t.rows(in, out, "")
	t.fields[id] = rows
	return id
}

// rows are the fields of a struct; embedded structs are replaced by their fields.
func (t *table) rows(in, out reflect.Type, prefix string) []field {
	var rows []field
	for i := range in.NumField() {
		f := in.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" {
			continue
		}
		source, typ := find(out, f.Name)
		if f.Anonymous && tag == "" {
			step := prefix
			if source != "" {
				step += source + "/"
			}
			if typ == nil {
				typ = out
			}
			rows = append(rows, t.rows(f.Type, typ, step)...)
			continue
		}
		if there, ok := moved[in.Name()+"."+f.Name]; ok {
			source = there
		} else if source == "" {
			log.Printf("%s.%s has no source", in.Name(), f.Name)
		}
		if tag == "" {
			tag = f.Name
		}
		if source != "" {
			source = prefix + source
		}
		omit := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		rows = append(rows, field{tag, source, t.of(f.Type, typ), omit})
	}
	return rows
}

// find returns the JSON name and the type of a field by its Go name; inlined fields have no name.
func find(out reflect.Type, name string) (string, reflect.Type) {
	if out == nil || out.Kind() != reflect.Struct {
		return "", nil
	}
	f, ok := out.FieldByName(name)
	if !ok {
		return "", nil
	}
	tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return tag, f.Type
}

func main() {
	output := flag.String("output", "", "file to write")
	flag.Parse()
	t := &table{names: map[reflect.Type]int{}, formIDs: map[string]int{}}
	for _, root := range roots {
		t.add(reflect.TypeOf(root.internal), reflect.TypeOf(root.versioned))
	}
	var b bytes.Buffer
	b.WriteString("// Generated by tools/internal-forms from k8s.io/kubernetes v1.36.4 (Apache-2.0, The Kubernetes\n// Authors). Do not edit.\n\nuse super::Form::{self, *};\nuse super::{FieldRow, StructRow};\n\n")
	fmt.Fprintf(&b, "pub(super) static STRUCTS: [StructRow; %d] = [\n", len(t.structs))
	first := 0
	for i, name := range t.structs {
		fmt.Fprintf(&b, "    StructRow(%q, %d, %d),\n", name, first, first+len(t.fields[i]))
		first += len(t.fields[i])
	}
	fmt.Fprintf(&b, "];\n\npub(super) static FORMS: [Form; %d] = [\n", len(t.forms))
	for _, form := range t.forms {
		fmt.Fprintf(&b, "    %s,\n", form)
	}
	fmt.Fprintf(&b, "];\n\npub(super) static FIELDS: [FieldRow; %d] = [\n", first)
	for i, name := range t.structs {
		fmt.Fprintf(&b, "    // %s\n", name)
		for _, f := range t.fields[i] {
			fmt.Fprintf(&b, "    FieldRow(%q, %q, %s, %v),\n", f.name, f.source, f.form, f.omit)
		}
	}
	b.WriteString("];\n")
	if err := os.WriteFile(*output, b.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
