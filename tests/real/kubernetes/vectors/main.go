// Prints built-in objects twice, one JSON object per line: as Go writes them in protobuf (base64) and in JSON. Remuda's
// decoder must turn the first into the second. Arguments are group/version/Kind ("v1/Pod" for core), or one group/version
// pair for all of its kinds. Each kind comes empty and with every field set; values are made up but always the same.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

type vector struct {
	Name     string          `json:"name"`
	Protobuf []byte          `json:"protobuf"`
	JSON     json.RawMessage `json:"json"`
}

// filler sets every field of a value. A type inside itself (a schema in a schema) is filled once more, then left empty.
type filler struct {
	count  int
	within map[reflect.Type]int
}

func (f *filler) next() int {
	f.count++
	return f.count
}

func (f *filler) fill(v reflect.Value) {
	if f.special(v) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if f.within[v.Type().Elem()] > 1 {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		f.within[v.Type()]++
		defer func() { f.within[v.Type()]-- }()
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Type != reflect.TypeFor[metav1.TypeMeta]() {
				f.fill(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte{0, 0xff, byte(f.next())})
			return
		}
		if f.within[v.Type().Elem()] > 1 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Map:
		if f.within[v.Type().Elem()] > 1 {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key)
		f.fill(value)
		v.SetMapIndex(key, value)
		empty := reflect.New(v.Type().Key()).Elem()
		f.fill(empty)
		if v.Type().Elem().Kind() == reflect.String {
			v.SetMapIndex(empty, reflect.Zero(v.Type().Elem()))
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d-ä", f.next()))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32:
		v.SetInt(int64(f.next()) * -1)
	case reflect.Int64, reflect.Int:
		v.SetInt(int64(f.next()) << 33)
	case reflect.Float64:
		v.SetFloat(float64(f.next()) + 0.5)
	default:
		panic(fmt.Sprintf("%s cannot be filled", v.Type()))
	}
}

func (f *filler) special(v reflect.Value) bool {
	n := f.next()
	moment := time.Date(2024, 2, 29, 23, 59, n%60, 123456789, time.UTC)
	raw := fmt.Appendf(nil, `{"f:number":%d,"list":[1,"two",null]}`, n)
	switch at := v.Addr().Interface().(type) {
	case *metav1.Time:
		*at = metav1.NewTime(moment.Truncate(time.Second))
	case *metav1.MicroTime:
		*at = metav1.NewMicroTime(moment.Truncate(time.Microsecond))
	case *resource.Quantity:
		*at = resource.MustParse(fmt.Sprintf("%dMi", n))
	case *intstr.IntOrString:
		*at = intstr.FromInt32(int32(n))
		if n%2 == 0 {
			*at = intstr.FromString(fmt.Sprintf("%d%%", n))
		}
	case *runtime.RawExtension:
		at.Raw = raw
	case *metav1.FieldsV1:
		at.SetRawBytes(raw)
	case *apiextensionsv1.JSON:
		at.Raw = raw
	case *apiextensionsv1.JSONSchemaPropsOrBool:
		at.Allows = n%2 == 0
		if n%3 == 0 {
			at.Schema = f.schema()
		}
	case *apiextensionsv1.JSONSchemaPropsOrArray:
		at.Schema = f.schema()
		if inner := f.schema(); n%2 == 0 && inner != nil {
			at.JSONSchemas = []apiextensionsv1.JSONSchemaProps{*inner, {}}
		}
	case *apiextensionsv1.JSONSchemaPropsOrStringArray:
		at.Property = []string{"one", "two"}
		if n%2 == 0 {
			at.Property, at.Schema = nil, f.schema()
		}
	default:
		return false
	}
	return true
}

// schema makes one more level of schema, or nil at the deepest.
func (f *filler) schema() *apiextensionsv1.JSONSchemaProps {
	if f.within[reflect.TypeFor[apiextensionsv1.JSONSchemaProps]()] > 1 {
		return nil
	}
	made := &apiextensionsv1.JSONSchemaProps{}
	f.fill(reflect.ValueOf(made).Elem())
	return made
}

func write(known *runtime.Scheme, gvk schema.GroupVersionKind, name string, object runtime.Object) {
	object.GetObjectKind().SetGroupVersionKind(gvk)
	var encoded bytes.Buffer
	if err := protobuf.NewSerializer(known, known).Encode(object, &encoded); err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	if err := json.NewEncoder(os.Stdout).Encode(vector{name, encoded.Bytes(), text}); err != nil {
		panic(err)
	}
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
		for _, gvk := range chosen(known, argument) {
			name := gvk.GroupVersion().String() + "/" + gvk.Kind
			empty, err := known.New(gvk)
			if err != nil {
				panic(err)
			}
			write(known, gvk, name+" empty", empty)
			full, _ := known.New(gvk)
			(&filler{within: map[reflect.Type]int{}}).fill(reflect.ValueOf(full).Elem())
			write(known, gvk, name+" full", full)
		}
	}
}

func chosen(known *runtime.Scheme, argument string) []schema.GroupVersionKind {
	if cut := strings.LastIndex(argument, "/"); cut >= 0 && strings.ToUpper(argument[cut+1:cut+2]) == argument[cut+1:cut+2] {
		gv, err := schema.ParseGroupVersion(argument[:cut])
		if err != nil {
			panic(err)
		}
		return []schema.GroupVersionKind{gv.WithKind(argument[cut+1:])}
	}
	gv, err := schema.ParseGroupVersion(argument)
	if err != nil {
		panic(err)
	}
	var found []schema.GroupVersionKind
	for kind := range known.KnownTypes(gv) {
		if strings.HasSuffix(kind, "Options") && kind != "DeleteOptions" || kind == "WatchEvent" {
			continue
		}
		found = append(found, gv.WithKind(kind))
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Kind < found[j].Kind })
	return found
}
