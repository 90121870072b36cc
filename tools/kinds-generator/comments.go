package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"reflect"
	"strings"
)

// comments reads the markers (`+listType=map`) that stand above fields and types, which reflection
// cannot see.
type comments struct {
	packages map[string]map[string]map[string][]string
}

func newComments() *comments {
	return &comments{packages: map[string]map[string]map[string][]string{}}
}

// of returns the markers of a field, or of its type where the field has none.
func (c *comments) of(t reflect.Type, name string) map[string][]string {
	markers := c.load(t.PkgPath())[t.Name()+"."+name]
	field, _ := t.FieldByName(name)
	element := field.Type
	for element.Kind() == reflect.Pointer {
		element = element.Elem()
	}
	merged := map[string][]string{}
	if element.Name() != "" && strings.Contains(element.PkgPath(), "k8s.io/") {
		for key, values := range c.load(element.PkgPath())[element.Name()] {
			merged[key] = values
		}
	}
	for key, values := range markers {
		merged[key] = values
	}
	return merged
}

func (c *comments) load(path string) map[string]map[string][]string {
	if loaded, ok := c.packages[path]; ok {
		return loaded
	}
	found := map[string]map[string][]string{}
	c.packages[path] = found
	folder, err := exec.Command("go", "list", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		panic(path + ": " + err.Error())
	}
	parsed, err := parser.ParseDir(token.NewFileSet(), strings.TrimSpace(string(folder)), nil, parser.ParseComments)
	if err != nil {
		panic(err)
	}
	for _, pkg := range parsed {
		for _, file := range pkg.Files {
			for _, declaration := range file.Decls {
				general, ok := declaration.(*ast.GenDecl)
				if !ok {
					continue
				}
				for _, spec := range general.Specs {
					if named, ok := spec.(*ast.TypeSpec); ok {
						record(found, named, general.Doc)
					}
				}
			}
		}
	}
	return found
}

func record(found map[string]map[string][]string, named *ast.TypeSpec, doc *ast.CommentGroup) {
	if named.Doc != nil {
		doc = named.Doc
	}
	found[named.Name.Name] = markers(doc)
	body, ok := named.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range body.Fields.List {
		for _, name := range field.Names {
			found[named.Name.Name+"."+name.Name] = markers(field.Doc)
		}
	}
}

func markers(doc *ast.CommentGroup) map[string][]string {
	found := map[string][]string{}
	if doc == nil {
		return found
	}
	for _, comment := range doc.List {
		text := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//"))
		if key, value, ok := strings.Cut(strings.TrimPrefix(text, "+"), "="); ok && strings.HasPrefix(text, "+") {
			found[key] = append(found[key], value)
		}
	}
	return found
}
