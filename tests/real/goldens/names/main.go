// Reads cases as JSON lines and prints what Rancher's own library, and Go's own encoder, make of each; make.py feeds it.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/rancher/wrangler/v3/pkg/apply"
	"github.com/rancher/wrangler/v3/pkg/name"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type in struct {
	Op    string
	Parts []string
	Count int
	Pool  string
	Value map[string]any
}

func written(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func answer(i in) string {
	switch i.Op {
	case "safe":
		return name.SafeConcatName(i.Parts...)
	case "hex":
		return name.Hex(i.Parts[0], i.Count)
	case "marks":
		owner := &unstructured.Unstructured{}
		owner.SetAPIVersion(i.Parts[1])
		owner.SetKind(i.Parts[2])
		owner.SetNamespace(i.Parts[3])
		owner.SetName(i.Parts[4])
		labels, annotations, err := apply.GetLabelsAndAnnotations(i.Parts[0], owner)
		if err != nil {
			panic(err)
		}
		return written([]map[string]string{labels, annotations})
	case "json":
		return written(i.Value)
	case "template":
		sum := sha256.Sum256(append([]byte(i.Pool), written(i.Value)...))
		return hex.EncodeToString(sum[:])[:8]
	}
	panic(i.Op)
}

func main() {
	s := bufio.NewScanner(os.Stdin)
	s.Buffer(make([]byte, 1<<20), 1<<26)
	for s.Scan() {
		var i in
		if err := json.Unmarshal(s.Bytes(), &i); err != nil {
			panic(err)
		}
		told, err := json.Marshal(answer(i))
		if err != nil {
			panic(err)
		}
		fmt.Println(string(told))
	}
}
