"""Valid objects changed at random, towards the rules: what breaks one, and what only just doesn't."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from .cases import CLUSTER, LONG, MAX, MIN, SKIP, Obj
from .checks import NAMING

Chance = random.Random
Change = Callable[[Obj, Chance], None]

_NAMES = ("one", "c1", "c2", LONG, "dotted.name", "a_b")
_KEYS = ("a", "tier", CLUSTER, "cluster.x-k8s.io/set-name", "cluster.x-k8s.io/deployment-name", "x.io/y", "a b", "/x", "x/", "")
_VALUES = ("one", "c1", "c2", "", "b c", "<&>", LONG, "é")
_VERSIONS = (
    "v1.33.1",
    "1.33.1",
    "v1.33",
    "v1.33.1+k3s1",
    "v1.33.1-rc.1",
    "v1.33.01",
    "",
    "v",
    "x",
    "v1.33.1-",
    "v1.2.3-é",
    "v1.2.3+a..b",
)
_NUMBERS = (0, 1, 3, -1, "0%", "25%", "-5%", "+5%", "1", "a%", "%", "", "1_0%", "9999999999999999999%", "١%")
_SIZES = ("0", "3", "7", "-1", "+2", "", "x", "2147483647", "2147483648", " 3", "3.0")
_TAINTS = (
    "dedicated",
    "node.kubernetes.io/out-of-service",
    "node.kubernetes.io/x",
    "node-role.kubernetes.io/control-plane",
    "a b",
    "",
)
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "in", "")
_CHECKS = ("All", " KubeadmVersionSkew ", "ControlPlaneIsStable", "Nap", "", "all")
_BLOCKS = (
    "10.0.0.0/8",
    "10.0.0.0",
    "fd00::/8",
    "fd00::/129",
    "::/0",
    "1.2.3.4/032",
    "a/8",
    "1.2.3.4/99999999999999",
    "::1%x/3",
    "1::2::3/4",
)


def _put(*path: str) -> Callable[[Obj, Any], None]:
    def put(obj: Obj, value: Any) -> None:
        for step in path[:-1]:
            if not isinstance(obj.get(step), dict):
                obj[step] = {}
            obj = obj[step]
        if value is None:
            obj.pop(path[-1], None)
        else:
            obj[path[-1]] = value

    return put


def _choice(path: str, *values: Any) -> Change:
    put = _put(*path.split("."))
    return lambda obj, chance: put(obj, chance.choice((*values, None)))


def _labels(chance: Chance) -> Obj:
    # Go tells of one bad entry of a map, and not always the same: so one at most is made.
    good, bad = ("a", "tier", CLUSTER, "cluster.x-k8s.io/set-name", "cluster.x-k8s.io/deployment-name"), chance.random() < 0.3
    found = {chance.choice(good): chance.choice(("one", "c1", "")) for _ in range(chance.randint(0, 3))}
    if bad:
        found[chance.choice(_KEYS)] = chance.choice(_VALUES)
    return found


def _selector(chance: Chance) -> Obj:
    found: Obj = {}
    if chance.random() < 0.7:
        found["matchLabels"] = _labels(chance)
    if chance.random() < 0.6:
        found["matchExpressions"] = [_expression(chance) for _ in range(chance.randint(0, 3))]
    return found


def _expression(chance: Chance) -> Obj:
    found: Obj = {"key": chance.choice(_KEYS), "operator": chance.choice(_OPERATORS)}
    if chance.random() < 0.6:
        found["values"] = [chance.choice(_VALUES) for _ in range(chance.randint(0, 3))]
    return found


def _made(path: str, make: Callable[[Chance], Any]) -> Change:
    put = _put(*path.split("."))
    return lambda obj, chance: put(obj, make(chance))


def _taints(chance: Chance) -> list[Obj]:
    return [{"key": chance.choice(_TAINTS), "effect": "NoSchedule", "propagation": "Always"} for _ in range(chance.randint(1, 3))]


def _machine(path: str) -> tuple[Change, ...]:
    config = {"apiGroup": "bootstrap.test.io", "kind": "TestConfig", "name": "x"}
    return (
        _choice(f"{path}.bootstrap.dataSecretName", "", "x"),
        _choice(f"{path}.bootstrap.configRef", config, {}, {"name": "x"}),
        _choice(f"{path}.version", *_VERSIONS),
        _choice(f"{path}.clusterName", *_NAMES),
        _made(f"{path}.taints", _taints),
        _choice(f"{path}.deletion", {"nodeDeletionTimeoutSeconds": 0}, {"nodeDrainTimeoutSeconds": 7}),
    )


def _annotations(obj: Obj, chance: Chance) -> None:
    found = obj["metadata"].setdefault("annotations", {})
    for key, values in ((MIN, _SIZES), (MAX, _SIZES)):
        if chance.random() < 0.8:
            found[key] = chance.choice(values)
    if chance.random() < 0.3:
        found[SKIP] = ",".join(chance.choice(_CHECKS) for _ in range(chance.randint(1, 3)))


def _sets() -> tuple[Change, ...]:
    return (
        *_machine("spec.template.spec"),
        _made("metadata.name", lambda chance: chance.choice(_NAMES)),
        _choice("spec.clusterName", *_NAMES),
        _choice("spec.replicas", 0, 2, 5, 9),
        _annotations,
        _made("spec.selector", _selector),
        _made("spec.template.metadata", lambda chance: {"labels": _labels(chance)}),
        _made("spec.template.metadata.labels", _labels),
        _choice("spec.template.metadata.annotations", {"a b": "x"}, {"UPPER.x/Y": "b c"}, {"ok": "é"}),
        _choice("spec.machineNaming.template", *(template for template, _ in NAMING)),
    )


_ROLLING = "spec.rollout.strategy.rollingUpdate"
_REF = {"apiGroup": "x.io", "kind": "X", "name": "x"}

_CHANGES: dict[str, tuple[Change, ...]] = {
    "Cluster": (
        _made("metadata.name", lambda chance: chance.choice(_NAMES)),
        _choice("spec.infrastructureRef", _REF, {}, {"kind": ""}),
        _choice("spec.controlPlaneRef", _REF, {}, {"name": "x"}),
        _made(
            "spec.clusterNetwork.pods.cidrBlocks", lambda chance: [chance.choice(_BLOCKS) for _ in range(chance.randint(0, 3))]
        ),
        _made("spec.clusterNetwork.services.cidrBlocks", lambda chance: [chance.choice(_BLOCKS)]),
        _choice("spec.topology", {}),
    ),
    "Machine": (
        *_machine("spec"),
        _made("metadata.labels", _labels),
        _made("metadata.labels", lambda _: {"cluster.x-k8s.io/control-plane": ""}),
        _choice("metadata.ownerReferences", [{"apiVersion": "v1", "kind": "MachinePool", "name": "p", "uid": "1"}]),
    ),
    "MachineSet": _sets(),
    "MachineDeployment": (
        *_sets(),
        _choice(f"{_ROLLING}.maxSurge", *_NUMBERS),
        _choice(f"{_ROLLING}.maxUnavailable", *_NUMBERS),
        _choice("spec.rollout.strategy", {"type": "OnDelete"}, {"type": "RollingUpdate"}, {}),
        _choice("spec.remediation.maxInFlight", *_NUMBERS),
    ),
    "MachineHealthCheck": (
        _made("spec.clusterName", lambda chance: chance.choice(_NAMES)),
        _made("metadata.labels", _labels),
        _made("spec.selector", _selector),
        _choice("spec.checks.nodeStartupTimeoutSeconds", 0, 1, 29, 30, -5),
        _choice("spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", *_NUMBERS),
    ),
    "MachineDrainRule": (
        _choice("spec.drain.behavior", "Drain", "Skip", "WaitCompleted"),
        _choice("spec.drain.order", 0, -1, 7),
        _made("spec.machines", lambda chance: [{"selector": _selector(chance), "clusterSelector": _selector(chance)}]),
        _made("spec.pods", lambda chance: [{"selector": _selector(chance)}, {"namespaceSelector": _selector(chance)}]),
    ),
}


def changed(valid: Obj, chance: Chance) -> Obj:
    """A copy with one to three changes."""
    obj = copy.deepcopy(valid)
    for change in chance.sample(_CHANGES[obj["kind"]], chance.randint(1, 3)):
        change(obj, chance)
    return obj


_SYNTAX = (
    *("{{", "}}", "{{ ", " }}", "{{- ", " -}}", " ", "  ", "|", " | ", "-", "a", "B", "}", "{", "\n", ",", "!"),
    *("{{/* x */}}", "{{- /* x */ -}}", "{{ .random }}", "/*", "*/", '"', "`"),
)
_TERMS = (
    *(".cluster", ".name", ".random", ".foo", ".", ".cluster.name", ".machineSet.name", "3", "0", "-1", '"a"', "`b`", "é"),
    *("slice .cluster.name", "slice", "printf", "printf `%s`", 'printf "%.2s%%"', "| printf `%s-%s`", "|", "if", "len", "print"),
)


def random_template(chance: Chance) -> str:
    """A call of anything with anything, words in any order, or a good template with one put in or one character lost."""
    kind = chance.random()
    if kind < 0.4:
        return f"{{{{ {' '.join(chance.choice(_TERMS) for _ in range(chance.randint(1, 4)))} }}}}{{{{ .random }}}}"
    if kind < 0.7:
        return "".join(chance.choice(_SYNTAX + _TERMS) for _ in range(chance.randint(1, 9)))
    template, word = chance.choice(NAMING)[0], chance.choice(_SYNTAX + _TERMS)
    at = chance.randrange(len(template))
    return template[:at] + word + template[at:] if kind < 0.9 else template[:at] + template[at + 1 :]
