"""The roles and bindings that every Kubernetes API starts with, and the update of stored ones.

`bootstrap_policy.json` holds them in a short form (a rule is a list of space-separated words: verbs, API groups, resources and,
when limited, names; or verbs and URLs), written by `tests/real/describe_roles.py` from the objects that a real
kube-apiserver creates. At start the server writes the results of :func:`reconcile`: added rules stay, missing rules are
restored, and an object annotated `rbac.authorization.kubernetes.io/autoupdate: "false"` is not changed.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from remuda.kube.authorization.policy_rules import uncovered
from remuda.kube.authorization.rbac import GROUP
from remuda.kube.encoding import jsonio

Obj = dict[str, Any]

PATH = Path(__file__).with_name("bootstrap_policy.json")
KINDS = {
    "clusterroles": "ClusterRole",
    "clusterrolebindings": "ClusterRoleBinding",
    "roles": "Role",
    "rolebindings": "RoleBinding",
}
AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
ANNOTATIONS = {AUTO_UPDATE: "true"}
_CORE = "core"


class Operation(Enum):
    NONE = "none"
    CREATE = "create"
    UPDATE = "update"
    # A binding's roleRef can't be changed: delete, then create.
    RECREATE = "recreate"


class Reconciled(NamedTuple):
    operation: Operation
    obj: Obj


def desired() -> list[Obj]:
    """All bootstrap objects: ClusterRoles and their bindings first, as namespaced ones may refer to them."""
    order = list(KINDS.values())
    objects = [expand(short) for short in jsonio.loads(PATH.read_bytes())]
    return sorted(objects, key=lambda obj: order.index(obj["kind"]))


def reconcile(existing: Obj | None, expected: Obj) -> Reconciled:
    """The operation on a stored bootstrap object, and the desired object."""
    if existing is None:
        return Reconciled(Operation.CREATE, expected)
    if ((existing.get("metadata") or {}).get("annotations") or {}).get(AUTO_UPDATE) == "false":
        return Reconciled(Operation.NONE, existing)
    if expected.get("roleRef") != existing.get("roleRef"):
        return Reconciled(Operation.RECREATE, expected)
    changed = _with_subjects(existing, expected) if "roleRef" in expected else _with_rules(existing, expected)
    changed = _with_marks(changed, expected)
    return Reconciled(Operation.NONE if changed == existing else Operation.UPDATE, changed)


def _with_marks(existing: Obj, expected: Obj) -> Obj:
    metadata = dict(existing["metadata"])
    for field in ("labels", "annotations"):
        metadata[field] = {**expected["metadata"].get(field, {}), **(metadata.get(field) or {})}
    return {**existing, "metadata": metadata}


def _with_rules(existing: Obj, expected: Obj) -> Obj:
    changed = dict(existing)
    held = existing.get("rules") or []
    if missing := uncovered(held, expected.get("rules") or ()):
        changed["rules"] = [*held, *missing]
    if expected.get("aggregationRule") is None:
        changed.pop("aggregationRule", None)
        return changed
    selectors = list((existing.get("aggregationRule") or {}).get("clusterRoleSelectors") or ())
    wanted = [each for each in expected["aggregationRule"]["clusterRoleSelectors"] if each not in selectors]
    if wanted:
        changed["aggregationRule"] = {**(existing.get("aggregationRule") or {}), "clusterRoleSelectors": selectors + wanted}
    return changed


def _with_subjects(existing: Obj, expected: Obj) -> Obj:
    held = existing.get("subjects") or []
    missing = [each for each in expected.get("subjects") or () if each not in held]
    return {**existing, "subjects": [*held, *missing]} if missing else existing


# ---------------------------------------------------------------------------------------------------------------------
# The short form


def expand(short: Obj) -> Obj:
    metadata: Obj = {"name": short["name"]}
    if "namespace" in short:
        metadata["namespace"] = short["namespace"]
    metadata["labels"] = {**LABELS, **short.get("labels", {})}
    metadata["annotations"] = dict(ANNOTATIONS)
    obj: Obj = {"apiVersion": f"{GROUP}/v1", "kind": short["kind"], "metadata": metadata}
    if "aggregate" in short:
        obj["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": labels} for labels in short["aggregate"]]}
    if "rules" in short:
        obj["rules"] = [_expand_rule(rule) for rule in short["rules"]]
    if "role" in short:
        kind, _, name = short["role"].partition(" ")
        obj["roleRef"] = {"apiGroup": GROUP, "kind": kind, "name": name}
        if short["subjects"]:
            obj["subjects"] = [_expand_subject(subject) for subject in short["subjects"]]
    return obj


def _expand_rule(short: list[str]) -> Obj:
    rule: Obj = {"verbs": short[0].split()}
    if len(short) == 2:
        return {**rule, "nonResourceURLs": short[1].split()}
    rule["apiGroups"] = ["" if group == _CORE else group for group in short[1].split()]
    rule["resources"] = short[2].split()
    return {**rule, "resourceNames": short[3].split()} if len(short) == 4 else rule


def _expand_subject(short: str) -> Obj:
    kind, *where, name = short.split(" ")
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": where[0]}
    return {"kind": kind, "apiGroup": GROUP, "name": name}
