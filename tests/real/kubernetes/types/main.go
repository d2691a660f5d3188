// Describes the Go types behind the built-in kinds, as JSON on standard output: what the OpenAPI documents do not say.
// For each struct: its Go name, and per field the JSON name, the Go type (as error texts print it), how empty values are
// written, and the protobuf field number. The arguments are group/version pairs ("v1" for core). `describe_types.py`
// joins this with the OpenAPI and discovery documents of a running server.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

type field struct {
	JSON   string `json:"json"`
	Type   int    `json:"type"`
	Empty  bool   `json:"omitempty,omitempty"`
	Zero   bool   `json:"omitzero,omitempty"`
	Inline bool   `json:"inline,omitempty"`
	Proto  int    `json:"proto,omitempty"`
}

type definition struct {
	Model string `json:"model"`
	Go    string `json:"go"`
	// Custom types write and read their own JSON; their fields matter to protobuf only.
	Custom bool    `json:"custom,omitempty"`
	Fields []field `json:"fields"`
}

type kind struct {
	Group, Version, Kind string
	Definition           int
}

type output struct {
	// Each type is a short array: a scalar ["string"], or with its Go name ["string","v1.Protocol"]; ["*",t],
	// ["[]",t], ["{}",key,t] (named when one more string follows); ["w",t,name] a list that protobuf wraps in a
	// message; ["#",definition].
	Types       [][]any      `json:"types"`
	Definitions []definition `json:"definitions"`
	Kinds       []kind       `json:"kinds"`
}

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	out         output
	typeIndex   = map[reflect.Type]int{}
	structIndex = map[reflect.Type]int{}
)

func typeOf(t reflect.Type) int {
	if index, ok := typeIndex[t]; ok {
		return index
	}
	index := len(out.Types)
	typeIndex[t] = index
	out.Types = append(out.Types, nil)
	out.Types[index] = describe(t)
	return index
}

func describe(t reflect.Type) []any {
	named := func(parts ...any) []any {
		if t.PkgPath() != "" {
			return append(parts, t.String())
		}
		return parts
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64, reflect.Int, reflect.Uint8:
		return named(t.Kind().String())
	case reflect.Pointer:
		return []any{"*", typeOf(t.Elem())}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return named("bytes")
		}
		if _, wraps := reflect.New(t).Interface().(interface{ Unmarshal([]byte) error }); wraps {
			return named("w", typeOf(t.Elem()))
		}
		return named("[]", typeOf(t.Elem()))
	case reflect.Map:
		return named("{}", typeOf(t.Key()), typeOf(t.Elem()))
	case reflect.Struct:
		return []any{"#", define(t)}
	case reflect.Interface:
		return []any{"any"}
	}
	panic(fmt.Sprintf("%s is of kind %s, which no API type used so far", t, t.Kind()))
}

func define(t reflect.Type) int {
	if index, ok := structIndex[t]; ok {
		return index
	}
	index := len(out.Definitions)
	structIndex[t] = index
	out.Definitions = append(out.Definitions, definition{})
	described := definition{Go: t.String(), Custom: reflect.PointerTo(t).Implements(unmarshaler)}
	if model, ok := reflect.New(t).Elem().Interface().(interface{ OpenAPIModelName() string }); ok {
		described.Model = model.OpenAPIModelName()
	}
	for _, each := range reflect.VisibleFields(t) {
		if len(each.Index) > 1 || !each.IsExported() {
			continue
		}
		if found, ok := describeField(each, described.Custom); ok {
			described.Fields = append(described.Fields, found)
		}
	}
	out.Definitions[index] = described
	return index
}

func describeField(from reflect.StructField, custom bool) (field, bool) {
	tag, tagged := from.Tag.Lookup("json")
	name, options, _ := strings.Cut(tag, ",")
	proto := from.Tag.Get("protobuf")
	if (name == "-" || !tagged) && proto == "" {
		return field{}, false
	}
	result := field{JSON: name}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty":
			result.Empty = true
		case "omitzero":
			result.Zero = true
		case "inline":
			result.Inline = true
		}
	}
	if from.Anonymous && name == "" && !custom {
		result.Inline = true
	}
	if parts := strings.Split(proto, ","); len(parts) > 1 {
		result.Proto, _ = strconv.Atoi(parts[1])
	}
	result.Type = typeOf(from.Type)
	return result, true
}

func main() {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(known); err != nil {
			panic(err)
		}
	}
	for _, argument := range os.Args[1:] {
		gv, err := schema.ParseGroupVersion(argument)
		if err != nil {
			panic(err)
		}
		types := known.KnownTypes(gv)
		names := make([]string, 0, len(types))
		for name := range types {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			// Query options and the like travel in URLs, not bodies.
			if strings.HasSuffix(name, "Options") && name != "DeleteOptions" || strings.HasPrefix(name, "__") {
				continue
			}
			if types[name] == reflect.TypeFor[metav1.InternalEvent]() {
				continue
			}
			out.Kinds = append(out.Kinds, kind{gv.Group, gv.Version, name, define(types[name])})
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	if err := encoder.Encode(out); err != nil {
		panic(err)
	}
}
