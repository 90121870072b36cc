package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// comments reads the markers (`+listType=map`) in the comments of fields and types, which are not available
// through reflection.
type comments struct {
	packages map[string]map[string]map[string][]string
	// enums are the values of types with the marker `+enum`, by package and name.
	enums map[string][]string
	// constants are string constants, by package and name.
	constants map[string]string
}

func newComments() *comments {
	return &comments{
		packages:  map[string]map[string]map[string][]string{},
		enums:     map[string][]string{},
		constants: map[string]string{},
	}
}

// of returns the markers of a field, or of its type if the field has none.
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

// isOptional reports whether a field has the marker `+optional`.
func (c *comments) isOptional(t reflect.Type, name string) bool {
	return c.load(t.PkgPath())[t.Name()+"."+name]["optional"] != nil
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
	marked, values := map[string]bool{}, map[string][]string{}
	defer func() {
		for name := range marked {
			slices.Sort(values[name])
			c.enums[path+"."+name] = slices.Compact(values[name])
		}
	}()
	for _, pkg := range parsed {
		for _, file := range pkg.Files {
			for _, declaration := range file.Decls {
				general, ok := declaration.(*ast.GenDecl)
				if !ok {
					continue
				}
				for _, spec := range general.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						record(found, spec, general.Doc)
						if isEnum(spec.Doc) || isEnum(general.Doc) {
							marked[spec.Name.Name] = true
						}
					case *ast.ValueSpec:
						if named, value, ok := c.constant(file, spec); ok {
							values[named] = append(values[named], value)
							c.constants[path+"."+spec.Names[0].Name] = value
						}
					}
				}
			}
		}
	}
	return found
}

// enum returns the values of a type, if it is marked as an enumeration.
func (c *comments) enum(t reflect.Type) []string {
	if t.Kind() != reflect.String || !strings.Contains(t.PkgPath(), "k8s.io/") {
		return nil
	}
	c.load(t.PkgPath())
	return c.enums[t.PkgPath()+"."+t.Name()]
}

func isEnum(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	return slices.ContainsFunc(doc.List, func(comment *ast.Comment) bool {
		return strings.TrimSpace(strings.TrimPrefix(comment.Text, "//")) == "+enum"
	})
}

// constant returns the type and the value of a string constant: `A T = "a"`, `A = T("a")` or `A = T(other.B)`.
func (c *comments) constant(file *ast.File, spec *ast.ValueSpec) (string, string, bool) {
	if len(spec.Values) != 1 {
		return "", "", false
	}
	typed, value := spec.Type, spec.Values[0]
	if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 {
		typed, value = call.Fun, call.Args[0]
	}
	named, ok := typed.(*ast.Ident)
	if !ok {
		return "", "", false
	}
	switch value := value.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(value.Value)
		return named.Name, text, err == nil && value.Kind == token.STRING
	case *ast.SelectorExpr:
		other, ok := value.X.(*ast.Ident)
		if !ok {
			return "", "", false
		}
		for _, spec := range file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if spec.Name != nil && spec.Name.Name == other.Name || strings.HasSuffix(path, "/"+other.Name) {
				c.load(path)
				text, ok := c.constants[path+"."+value.Sel.Name]
				return named.Name, text, ok
			}
		}
	}
	return "", "", false
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
		if text == "+optional" {
			found["optional"] = []string{""}
		}
		if key, value, ok := strings.Cut(strings.TrimPrefix(text, "+"), "="); ok && strings.HasPrefix(text, "+") {
			found[key] = append(found[key], value)
		}
	}
	return found
}
