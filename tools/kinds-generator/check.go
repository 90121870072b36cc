package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
)

// check compares every field with another extraction: a JSON map from the full name of a struct
// to its fields (j name, oe, oz, n number, w wire type, ps, pk, in inline, t type).
func (g *generator) check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	compared := 0
	for t, index := range g.structs {
		body, ok := raw[t.PkgPath()+"."+t.Name()]
		if !ok && len(g.structList[index].fields) == 0 {
			continue
		}
		if !ok {
			return fmt.Errorf("%s is missing there", t)
		}
		theirs := map[string]member{}
		if err := flatten(raw, body, theirs); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		for _, f := range g.structList[index].fields {
			want, ok := theirs[f.json]
			if !ok {
				return fmt.Errorf("%s.%s is missing there", t, f.json)
			}
			number, _ := strconv.Atoi(want.Number)
			got := member{Name: f.json, OmitEmpty: f.omitEmpty, OmitZero: f.omitZero, Number: want.Number, Wire: f.wire, Strategy: f.patch.strategy, Key: f.patch.mergeKey, Type: want.Type}
			if number != f.number || got != want || !sameType(raw, want.Type, fullName(f.goType)) {
				return fmt.Errorf("%s.%s: %+v there, %+v of type %s here", t, f.json, want, got, fullName(f.goType))
			}
			delete(theirs, f.json)
			compared++
		}
		for name := range theirs {
			return fmt.Errorf("%s.%s is missing here", t, name)
		}
	}
	fmt.Fprintf(os.Stderr, "%d members are alike\n", compared)
	return nil
}

type member struct {
	Name      string `json:"j"`
	OmitEmpty bool   `json:"oe"`
	OmitZero  bool   `json:"oz"`
	Number    string `json:"n"`
	Wire      string `json:"w"`
	Strategy  string `json:"ps"`
	Key       string `json:"pk"`
	Inline    bool   `json:"in"`
	Type      string `json:"t"`
}

func flatten(raw map[string]json.RawMessage, body json.RawMessage, into map[string]member) error {
	var alias string
	if json.Unmarshal(body, &alias) == nil {
		body = raw[alias]
	}
	var members []member
	if err := json.Unmarshal(body, &members); err != nil {
		return err
	}
	for _, m := range members {
		if m.Inline {
			inner, ok := raw[m.Type]
			if !ok {
				return fmt.Errorf("%s is missing there", m.Type)
			}
			if err := flatten(raw, inner, into); err != nil {
				return err
			}
		} else if m.Name != "" && m.Name != "-" {
			into[m.Name] = m
		}
	}
	return nil
}

// sameType compares type names. The other extraction uses aliases, which are resolved here.
func sameType(raw map[string]json.RawMessage, theirs, ours string) bool {
	if theirs == ours {
		return true
	}
	prefix := theirs[:len(theirs)-len(strings.TrimLeft(theirs, "*[]"))]
	var behind string
	if err := json.Unmarshal(raw[strings.TrimPrefix(theirs, prefix)], &behind); err != nil {
		return false
	}
	return prefix+behind == ours
}

// fullName formats a type with the full path of its package.
func fullName(t reflect.Type) string {
	if t.Name() != "" {
		if t.PkgPath() == "" {
			return strings.Replace(t.Name(), "uint8", "byte", 1)
		}
		return t.PkgPath() + "." + t.Name()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + fullName(t.Elem())
	case reflect.Slice:
		return "[]" + fullName(t.Elem())
	case reflect.Map:
		return "map[" + fullName(t.Key()) + "]" + fullName(t.Elem())
	}
	return t.String()
}
