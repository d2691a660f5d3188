"""kubectl on a kind that a CRD defines: the whole life of its objects and of the CRD."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .kubectl import Kubectl
from .zoo import define, pony, undefine


@pytest.fixture
def stable(kubectl: Kubectl) -> Iterator[Kubectl]:
    define(kubectl)
    yield kubectl
    undefine(kubectl)


def shown(kubectl: Kubectl, name: str = "merry") -> None:
    kubectl("get", "pony", name, "-o", "yaml", "--show-managed-fields", code=0)


def test_apply(stable: Kubectl) -> None:
    ns = stable.ns
    stable.write("a.yaml", pony(ns, "merry", meals=[{"at": "noon", "hay": 1}, {"at": "dusk"}]))
    stable("apply", "-f", "a.yaml", code=0)
    shown(stable)
    stable.write("a.yaml", pony(ns, "merry", meals=[{"at": "noon", "hay": 2}], height=1.5))
    stable("diff", "-f", "a.yaml", shape=lambda text: text.partition("@@")[2], code=1)
    stable("apply", "-f", "a.yaml", code=0)
    stable("apply", "-f", "a.yaml", code=0)
    shown(stable)


def test_server_side_apply(stable: Kubectl) -> None:
    ns = stable.ns
    stable.write("a.yaml", pony(ns, "merry", meals=[{"at": "noon", "hay": 1}], tags=["a"]))
    stable("apply", "--server-side", "-f", "a.yaml", code=0)
    stable.write("b.yaml", pony(ns, "merry", meals=[{"at": "dusk", "hay": 1}], tags=["b"]))
    stable("apply", "--server-side", "--field-manager=b", "-f", "b.yaml", code=0)
    shown(stable)
    stable.write("b.yaml", pony(ns, "merry", meals=[{"at": "noon", "hay": 9}]))
    stable("apply", "--server-side", "--field-manager=b", "-f", "b.yaml", code=1)
    stable("apply", "--server-side", "--field-manager=b", "-f", "b.yaml", "--force-conflicts", code=0)
    shown(stable)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"breed": "Donkey"}, id="not in the enumeration"),
        pytest.param({"replicas": -1}, id="below the minimum"),
        pytest.param({"replicas": "two"}, id="wrong type"),
        pytest.param({"nope": 1}, id="unknown field"),
        pytest.param({"tags": ["a", "a"]}, id="set with a double"),
        pytest.param({"meals": [{"hay": 1}]}, id="list without its key"),
        pytest.param({"port": 1.5}, id="neither integer nor string"),
    ],
)
@pytest.mark.parametrize("validate", ["strict", "ignore"])
def test_broken_manifest(stable: Kubectl, spec: dict[str, object], validate: str) -> None:
    stable.write("a.yaml", pony(stable.ns, "merry", **spec))
    stable("create", "-f", "a.yaml", f"--validate={validate}")
    stable("apply", "--server-side", "-f", "a.yaml", f"--validate={validate}")
    stable("get", "pony", "merry", "-o", "yaml")


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("merge", '{"spec":{"height":2.5,"notes":{"a":"b"}}}'),
        ("merge", '{"spec":{"breed":null}}'),
        ("merge", '{"status":{"phase":"Gone"}}'),
        ("json", '[{"op":"add","path":"/spec/tags","value":["x"]}]'),
        ("json", '[{"op":"remove","path":"/spec/breed"}]'),
        ("strategic", '{"spec":{"height":2}}'),
    ],
)
def test_patch(stable: Kubectl, kind: str, patch: str) -> None:
    stable.apply(pony(stable.ns, "merry"))
    stable("patch", "pony", "merry", f"--type={kind}", "-p", patch)
    shown(stable)


def test_status_and_scale(stable: Kubectl) -> None:
    stable.apply(pony(stable.ns, "merry"))
    status = '{"status":{"phase":"Fed","replicas":1,"selector":"a=b"},"spec":{"breed":"Exmoor"}}'
    stable("patch", "pony", "merry", "--subresource=status", "--type=merge", "-p", status, code=0)
    shown(stable)
    stable("scale", "pony/merry", "--replicas=4", code=0)
    stable("scale", "pony/merry", "--replicas=5", "--current-replicas=1", code=1)
    stable("get", "pony", "merry", "--subresource=scale", "-o", "yaml", code=0)
    stable("scale", "ponies", "--all", "--replicas=2", code=0)
    shown(stable)
    with stable.meanwhile("wait", "--for=jsonpath={.status.phase}=Full", "pony/merry", "--timeout=90s"):
        stable("patch", "pony", "merry", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Full"}}', code=0)


def test_label_edit_and_replace(stable: Kubectl) -> None:
    stable.apply(pony(stable.ns, "merry"))
    stable("label", "pony", "merry", "x=y", code=0)
    stable("annotate", "pn", "--all", "note=here", code=0)
    stable.editor = "sed -i s/Shetland/Exmoor/"
    stable("edit", "pony/merry", code=0)
    stable.editor = "sed -i s/Exmoor/Donkey/"
    stable("edit", "pony/merry", shape=lambda text: "" if "stored to" in text else text, code=1)
    stable.write("a.yaml", pony(stable.ns, "merry", height=3))
    stable("replace", "-f", "a.yaml", code=0)
    stable("replace", "--force", "-f", "a.yaml", code=0)
    shown(stable)


def test_delete_of_objects_and_of_the_definition(stable: Kubectl) -> None:
    stable.apply(pony(stable.ns, "merry"), pony(stable.ns, "fatty"), pony(stable.ns, "star"))
    stable("get", "all", "-l", "app=zoo", code=0)
    stable("delete", "pony", "merry", code=0)
    stable("delete", "ponies", "-l", "app=zoo", "--field-selector=metadata.name=fatty", code=0)
    stable("delete", "crd", f"ponies.{stable.ns}.example.com", code=0)
    # kube-apiserver serves and tells of it for a moment longer.
    for path in ("", "/namespaces/{ns}/ponies"):
        stable.until("get", "--raw", f"/apis/{stable.ns}.example.com/v1{path}", shows="NotFound")
    stable("get", "ponies", code=1)
    stable("get", f"ponies.{stable.ns}.example.com", code=1)
    stable("get", "--raw", f"/apis/{stable.ns}.example.com/v1", code=1)
