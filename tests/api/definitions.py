"""CRDs for tests: built from a schema, made on both servers, waited for, and taken away again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .harness import Answer, Both, Pair
from .masks import masked

Obj = dict[str, Any]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def group_of(pair: Pair) -> str:
    """CRDs are cluster-wide, so each test has a group of its own."""
    return f"{pair.ns}.example.com"


def version(name: str = "v1", schema: Obj | None = None, storage: bool = True, **more: Any) -> Obj:
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema or {"type": "object"}}, **more}


def spec_schema(**properties: Obj) -> Obj:
    """The schema of a resource whose spec has these properties."""
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def crd(pair: Pair, *versions: Obj, plural: str = "widgets", kind: str = "Widget", names: Obj | None = None, **spec: Any) -> Obj:
    group = group_of(pair)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, **(names or {})},
            "versions": list(versions) or [version()],
            **spec,
        },
    }


def path_of(definition: Obj, version: str = "", namespaced: bool = True) -> str:
    spec = definition["spec"]
    where = f"/apis/{spec['group']}/{version or spec['versions'][0]['name']}"
    inside = "/namespaces/{ns}" if namespaced and spec["scope"] == "Namespaced" else ""
    return f"{where}{inside}/{spec['names']['plural']}"


def instance(definition: Obj, name: str = "a", version: str = "", **fields: Any) -> Obj:
    spec = definition["spec"]
    return {
        "apiVersion": f"{spec['group']}/{version or spec['versions'][0]['name']}",
        "kind": spec["names"]["kind"],
        "metadata": {"name": name},
        **fields,
    }


_PATCHED = re.compile(r'Invalid value: "(\{.*\})": ', re.DOTALL)


def patched_apart(body: Any) -> Any:
    """A refused patch shows the whole patched object as text; here it is an object again, so that the mask can do its work."""
    if not isinstance(body, dict):
        return body
    for holder in (body, *((body.get("details") or {}).get("causes") or ())):
        found = _PATCHED.search(str(holder.get("message")))
        if found:
            holder["patched"] = masked(json.loads(json.loads(f'"{found.group(1)}"')))
            holder["message"] = holder["message"].replace(found.group(1), "<patched>")
    return body


def condition(answer: Answer, type_: str) -> str:
    if answer.status != 200:
        return ""
    conditions = answer.json.get("status", {}).get("conditions") or []
    return next((each["status"] for each in conditions if each["type"] == type_), "")


def establish(pair: Pair, definition: Obj, *, compare: bool = True) -> Both:
    """Create the CRD on both, and wait until both serve it."""
    pair.post(CRDS, definition, compare=compare)
    at = f"{CRDS}/{definition['metadata']['name']}"
    both = pair.eventually(at, lambda answer: condition(answer, "Established") == "True", compare=compare)
    for each in definition["spec"]["versions"]:
        if each["served"]:
            await_served(pair, definition, each["name"])
    return both


def await_served(pair: Pair, definition: Obj, version: str, status: int = 200) -> None:
    pair.eventually(path_of(definition, version), lambda answer: answer.status == status, compare=False)


def remove(pair: Pair, definition: Obj) -> None:
    at = f"{CRDS}/{definition['metadata']['name']}"
    pair.delete(at, compare=False)
    pair.eventually(at, lambda answer: answer.status == 404, compare=False)


@contextmanager
def defined(pair: Pair, definition: Obj, *, compare: bool = True) -> Iterator[Obj]:
    """The CRD, served by both servers while the block runs."""
    try:
        establish(pair, definition, compare=compare)
        yield definition
    finally:
        remove(pair, definition)
