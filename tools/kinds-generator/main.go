// Command kinds-generator writes the tables of crates/kinds/src/typed/tables.rs from the Go types
// of the Kubernetes API. See README.md.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func main() {
	output := flag.String("output", "", "the Rust file to write")
	against := flag.String("check", "", "another extraction (JSON) to compare the fields with")
	flag.Parse()

	g := &generator{index: map[reflect.Type]int{}, structs: map[reflect.Type]int{}, comments: newComments()}
	var kinds []kind
	for gvk, t := range served() {
		kinds = append(kinds, kind{gvk, t})
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].less(kinds[j]) })
	for _, k := range kinds {
		g.typeOf(k.goType)
	}
	if *against != "" {
		if err := g.check(*against); err != nil {
			fail(err)
		}
	}
	if *output != "" {
		if err := os.WriteFile(*output, []byte(g.rust(kinds)), 0o644); err != nil {
			fail(err)
		}
	}
	fmt.Fprintf(os.Stderr, "%d kinds, %d structs, %d types\n", len(kinds), len(g.structList), len(g.types))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

type kind struct {
	schema.GroupVersionKind
	goType reflect.Type
}

func (k kind) less(o kind) bool {
	if k.Group != o.Group {
		return k.Group < o.Group
	}
	if k.Version != o.Version {
		return k.Version < o.Version
	}
	return k.Kind < o.Kind
}

type generator struct {
	types      []goType
	index      map[reflect.Type]int
	structList []goStruct
	structs    map[reflect.Type]int
	comments   *comments
}

// goType is one Go type: its name in decode errors, its shape, its name in OpenAPI, and
// its values if it is an enumeration.
type goType struct {
	name  string
	shape string
	model string
	enum  []string
}

type goStruct struct {
	name   string
	fields []field
	embeds []embed
	// atomic is set if the struct has one field manager as a whole, in every place.
	atomic bool
}

type embed struct {
	name           string
	parent, number int
	wire           string
}

type field struct {
	json                string
	typ                 int
	embed               int
	omitEmpty, omitZero bool
	required            bool
	number              int
	wire                string
	patch               patch
	goType              reflect.Type
}

type patch struct {
	strategy, mergeKey, listType, mapType string
	keys                                  []string
}

// Types with custom JSON encoding, and the JSON shape of each.
var special = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "Time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "MicroTime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "Raw",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "Quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "IntOrString",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "Raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "Raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "SchemaOrBool",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "SchemaOrArray",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "SchemaOrTexts",
}

var unmarshaler = reflect.TypeOf((*json.Unmarshaler)(nil)).Elem()

// typeOf numbers a type and all types in it.
func (g *generator) typeOf(t reflect.Type) int {
	if i, ok := g.index[t]; ok {
		return i
	}
	i := len(g.types)
	g.index[t] = i
	g.types = append(g.types, goType{name: t.String(), model: model(t), enum: g.comments.enum(t)})
	g.types[i].shape = g.shape(t)
	return i
}

// model is the OpenAPI name of a type with a separate schema: the one it declares, or its package path with the
// host reversed.
func model(t reflect.Type) string {
	full := t.PkgPath() + "." + t.Name()
	if _, ok := special[full]; !ok && (t.Kind() != reflect.Struct || t.Name() == "") {
		return ""
	}
	if named, ok := reflect.New(t).Interface().(interface{ OpenAPIModelName() string }); ok {
		return named.OpenAPIModelName()
	}
	host, path, _ := strings.Cut(full, "/")
	parts := strings.Split(host, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(path, "/", ".")
}

func (g *generator) shape(t reflect.Type) string {
	full := t.PkgPath() + "." + t.Name()
	if s, ok := special[full]; ok {
		switch s {
		case "SchemaOrBool":
			return fmt.Sprintf("%s(%d)", s, g.member(t, "Schema"))
		case "SchemaOrArray":
			return fmt.Sprintf("%s(%d, %d)", s, g.member(t, "Schema"), g.member(t, "JSONSchemas"))
		case "SchemaOrTexts":
			return fmt.Sprintf("%s(%d, %d)", s, g.member(t, "Schema"), g.member(t, "Property"))
		}
		return s
	}
	if t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(unmarshaler) {
		panic("reads its own JSON: " + full)
	}
	switch t.Kind() {
	case reflect.String:
		return "Text"
	case reflect.Bool:
		return "Bool"
	case reflect.Int32, reflect.Int64, reflect.Float64:
		name := t.Kind().String()
		return strings.ToUpper(name[:1]) + name[1:]
	case reflect.Pointer:
		return fmt.Sprintf("Pointer(%d)", g.typeOf(t.Elem()))
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "Bytes"
		}
		return fmt.Sprintf("List(%d)", g.typeOf(t.Elem()))
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			panic("key of " + t.String())
		}
		return fmt.Sprintf("Map(%d)", g.typeOf(t.Elem()))
	case reflect.Struct:
		return fmt.Sprintf("Struct(%d)", g.structOf(t))
	}
	panic("no shape for " + t.String())
}

// member numbers the element type of one field of t.
func (g *generator) member(t reflect.Type, name string) int {
	f, _ := t.FieldByName(name)
	return g.typeOf(f.Type.Elem())
}

func (g *generator) structOf(t reflect.Type) int {
	i := len(g.structList)
	g.structs[t] = i
	g.structList = append(g.structList, goStruct{name: t.Name()})
	s := goStruct{name: t.Name(), embeds: []embed{{}}}
	s.atomic = first(g.comments.load(t.PkgPath())[t.Name()]["structType"]) == "atomic"
	g.collect(t, 0, &s)
	sort.Slice(s.fields, func(i, j int) bool { return s.fields[i].json < s.fields[j].json })
	for n := 1; n < len(s.fields); n++ {
		if s.fields[n].json == s.fields[n-1].json {
			panic(t.String() + " has two members " + s.fields[n].json)
		}
	}
	g.structList[i] = s
	return i
}

// collect adds the fields of a struct, including those of embedded structs.
func (g *generator) collect(t reflect.Type, within int, s *goStruct) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if tag[0] == "-" || !f.IsExported() {
			continue
		}
		number, wire := protobuf(f.Tag.Get("protobuf"))
		if f.Anonymous && tag[0] == "" {
			s.embeds = append(s.embeds, embed{f.Name, within, number, wire})
			g.collect(f.Type, len(s.embeds)-1, s)
			continue
		}
		out := field{json: tag[0], typ: g.typeOf(f.Type), embed: within, number: number, wire: wire, goType: f.Type}
		for _, option := range tag[1:] {
			switch option {
			case "omitempty":
				out.omitEmpty = true
			case "omitzero":
				out.omitZero = true
			case "inline", "":
			default:
				panic("option " + option + " on " + t.String() + "." + f.Name)
			}
		}
		if out.json == "" {
			out.json = f.Name
		}
		out.required = !out.omitEmpty && !g.comments.isOptional(t, f.Name)
		markers := g.comments.of(t, f.Name)
		out.patch = patch{
			strategy: f.Tag.Get("patchStrategy"),
			mergeKey: f.Tag.Get("patchMergeKey"),
			listType: first(markers["listType"]),
			mapType:  first(append(markers["mapType"], markers["structType"]...)),
			keys:     markers["listMapKey"],
		}
		s.fields = append(s.fields, out)
	}
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// protobuf reads the number and the wire type of a field tag. For a map the wire type is that of
// the entry.
func protobuf(tag string) (int, string) {
	if tag == "" {
		return 0, ""
	}
	parts := strings.Split(tag, ",")
	var number int
	if _, err := fmt.Sscanf(parts[1], "%d", &number); err != nil {
		panic(err)
	}
	return number, parts[0]
}
