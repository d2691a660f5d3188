"""The short form of roles and bindings, as `bootstrap_policy.json` has them; the server expands it."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.auth.bootstrap_policy import LABELS

Obj = dict[str, Any]


def shorten(obj: Obj) -> Obj:
    metadata = obj["metadata"]
    short: Obj = {"kind": obj["kind"], "name": metadata["name"]}
    if "namespace" in metadata:
        short["namespace"] = metadata["namespace"]
    if labels := {key: value for key, value in metadata["labels"].items() if key not in LABELS}:
        short["labels"] = labels
    if "aggregationRule" in obj:
        short["aggregate"] = [each["matchLabels"] for each in obj["aggregationRule"]["clusterRoleSelectors"]]
    if "rules" in obj:
        short["rules"] = [_shorten_rule(rule) for rule in obj["rules"]]
    if "roleRef" in obj:
        short["role"] = f"{obj['roleRef']['kind']} {obj['roleRef']['name']}"
        short["subjects"] = [_shorten_subject(subject) for subject in obj.get("subjects") or ()]
    return short


def _shorten_rule(rule: Obj) -> list[str]:
    if "nonResourceURLs" in rule:
        return [" ".join(rule["verbs"]), " ".join(rule["nonResourceURLs"])]
    groups = " ".join(group or "core" for group in rule["apiGroups"])
    short = [" ".join(rule["verbs"]), groups, " ".join(rule["resources"])]
    return [*short, " ".join(rule["resourceNames"])] if "resourceNames" in rule else short


def _shorten_subject(subject: Obj) -> str:
    if subject["kind"] == "ServiceAccount":
        return f"ServiceAccount {subject['namespace']} {subject['name']}"
    return f"{subject['kind']} {subject['name']}"
