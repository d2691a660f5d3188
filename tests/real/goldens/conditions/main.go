// Reads cases as JSON lines and prints what the code of Cluster API makes of each; make.py feeds it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1 "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
)

type in struct {
	Op                    string
	Machines              []clusterv1.Machine
	Kinds                 []string
	Negative              []string
	Optional              []string
	Steps                 bool
	Before, After, Latest []metav1.Condition
	Owned                 []string
}
type out struct {
	Status, Reason, Message, Severity, Err string
	Conditions                             []metav1.Condition
}

func main() {
	s := bufio.NewScanner(os.Stdin)
	s.Buffer(make([]byte, 1<<20), 1<<26)
	for s.Scan() {
		var i in
		if err := json.Unmarshal(s.Bytes(), &i); err != nil {
			panic(err)
		}
		var o out
		for n := range i.Machines {
			i.Machines[n].Kind = "Machine"
		}
		switch i.Op {
		case "summary":
			r, err := conditions.NewSummaryCondition(&i.Machines[0], "Target", conditions.ForConditionTypes(i.Kinds), conditions.NegativePolarityConditionTypes(i.Negative), conditions.IgnoreTypesIfMissing(i.Optional))
			if err != nil {
				o.Err = "e"
			} else {
				o.Status = string(r.Status)
				o.Reason = r.Reason
				o.Message = r.Message
			}
		case "aggregate":
			p := []*clusterv1.Machine{}
			for n := range i.Machines {
				p = append(p, &i.Machines[n])
			}
			opts := []conditions.AggregateOption{}
			if len(i.Negative) > 0 {
				opts = append(opts, conditions.NegativePolarityConditionTypes(i.Negative))
			}
			r, err := conditions.NewAggregateCondition(p, i.Kinds[0], opts...)
			if err != nil {
				o.Err = err.Error()
			} else {
				o.Status = string(r.Status)
				o.Reason = r.Reason
				o.Message = r.Message
			}
		case "legacysummary":
			m := &i.Machines[0]
			ks := []clusterv1.ConditionType{}
			for _, k := range i.Kinds {
				ks = append(ks, clusterv1.ConditionType(k))
			}
			ns := []clusterv1.ConditionType{}
			for _, k := range i.Negative {
				ns = append(ns, clusterv1.ConditionType(k))
			}
			v1.SetSummary(m, v1.WithConditions(ks...), v1.WithNegativePolarityConditions(ns...), v1.WithStepCounterIf(i.Steps))
			if c := v1.Get(m, "Ready"); c != nil {
				o.Status = string(c.Status)
				o.Reason = c.Reason
				o.Message = c.Message
				o.Severity = string(c.Severity)
			}
		case "legacyaggregate":
			p := []v1.Getter{}
			for n := range i.Machines {
				p = append(p, &i.Machines[n])
			}
			m := &clusterv1.Machine{}
			v1.SetAggregate(m, "T", p, v1.AddSourceRef())
			if c := v1.Get(m, "T"); c != nil {
				o.Status = string(c.Status)
				o.Reason = c.Reason
				o.Message = c.Message
				o.Severity = string(c.Severity)
			}
		case "merge":
			b, a, l := &clusterv1.Machine{}, &clusterv1.Machine{}, &clusterv1.Machine{}
			b.SetConditions(i.Before)
			a.SetConditions(i.After)
			l.SetConditions(i.Latest)
			d, err := conditions.NewPatch(b, a)
			if err == nil {
				err = d.Apply(l, conditions.OwnedConditionTypes(i.Owned))
			}
			if err != nil {
				o.Err = "conflict"
			} else {
				o.Conditions = l.GetConditions()
			}
		}
		x, _ := json.Marshal(o)
		fmt.Println(string(x))
	}
}
