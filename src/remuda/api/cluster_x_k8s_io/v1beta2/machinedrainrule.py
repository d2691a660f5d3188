"""MachineDrainRule: how pods are treated while a node is drained. It is the same in v1beta1."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from ...kubernetes import LabelSelector
from ...schema import Atomic, Cel, Doc, Int32, Items, MinProperties, Obj, rules

_EACH_ONCE = "self.all(x, self.exists_one(y, x == y))"


class Drain(TypedDict, total=False):
    """The treatment of the pods."""

    behavior: Required[
        Annotated[
            Literal["Drain", "Skip", "WaitCompleted"],
            Doc("Drain evicts the pods, Skip leaves them where they are, WaitCompleted waits until they have finished."),
        ]
    ]
    order: Annotated[Int32, Doc("Pods of a lower order go first; only for Drain. Default 0.")]


@rules(MinProperties(1))
class DrainedMachines(TypedDict, total=False):
    """Machines; both selectors must hold."""

    clusterSelector: Annotated[LabelSelector, Doc("Chooses Clusters by their labels; missing: all.")]
    selector: Annotated[LabelSelector, Doc("Chooses Machines by their labels; missing: all.")]


@rules(MinProperties(1))
class DrainedPods(TypedDict, total=False):
    """Pods; both selectors must hold."""

    namespaceSelector: Annotated[LabelSelector, Doc("Chooses namespaces by their labels; missing: all.")]
    selector: Annotated[LabelSelector, Doc("Chooses pods by their labels; missing: all.")]


class MachineDrainRuleSpec(TypedDict, total=False):
    """The treatment of the selected pods on the selected Machines."""

    drain: Required[Drain]
    machines: Annotated[
        list[DrainedMachines],
        Doc("The Machines that the rule is about; missing: all."),
        Items(1, 32),
        Atomic(),
        Cel(_EACH_ONCE, "entries in machines must be unique"),
    ]
    pods: Annotated[
        list[DrainedPods],
        Doc("The pods that the rule is about; missing: all."),
        Items(1, 32),
        Atomic(),
        Cel(_EACH_ONCE, "entries in pods must be unique"),
    ]


class MachineDrainRule(TypedDict, total=False):
    """Says how pods are treated while nodes are drained."""

    apiVersion: str
    kind: str
    metadata: Required[Obj]
    spec: Required[MachineDrainRuleSpec]
