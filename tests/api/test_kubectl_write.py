"""kubectl's ways to change things: create, apply, diff, edit, patch, replace, label, annotate, scale, delete."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
import yaml

from .builders import cm, deployment, owned_by_nobody, pod, replica_set
from .harness import SIDES
from .kubectl import Kubectl, sorted_lines, without_lines
from .zoo import secret, service

Obj = dict[str, Any]


def shown(kubectl: Kubectl, *what: str) -> None:
    """The object as it now is, on both, with who owns which field."""
    kubectl("get", *what, "-o", "yaml", "--show-managed-fields", code=0)


# --- create ----------------------------------------------------------------------------------------------------------


def test_create_from_a_file(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", cm("a", x="1"), secret("s", k="v"), deployment("d"))
    kubectl("create", "-f", "a.yaml", code=0)
    shown(kubectl, "cm/a", "secret/s", "deploy/d")
    kubectl("create", "-f", "a.yaml", code=1)


@pytest.mark.parametrize("flag", ["--dry-run=server", "--dry-run=client"])
def test_create_without_creating(kubectl: Kubectl, flag: str) -> None:
    kubectl.write("a.yaml", service("a", clusterIP="None"))
    kubectl("create", "-f", "a.yaml", flag, "-o", "yaml", code=0)
    kubectl("get", "svc", "a", code=1)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Bad_Name"}}, id="name"),
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dota": {}}, id="unknown field"),
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": 1}}, id="type"),
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": []}, id="list for map"),
        pytest.param({"apiVersion": "v1", "kind": "Nope", "metadata": {"name": "a"}}, id="kind"),
        pytest.param({"apiVersion": "nope/v1", "kind": "ConfigMap", "metadata": {"name": "a"}}, id="group"),
        pytest.param({"apiVersion": "v1", "metadata": {"name": "a"}}, id="no kind"),
        pytest.param({"kind": "ConfigMap", "metadata": {"name": "a"}}, id="no version"),
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap"}, id="no metadata"),
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "x"}}, id="namespace"),
        pytest.param(service("s", ports=[]), id="service without ports"),
        pytest.param(service("s", type="Nope"), id="service type"),
        pytest.param(pod("p", containers=[]), id="pod without containers"),
        pytest.param({**deployment("d"), "spec": {"replicas": -1}}, id="deployment"),
        pytest.param({**secret("s"), "type": "kubernetes.io/tls"}, id="tls secret without key"),
    ],
)
@pytest.mark.parametrize("verb", ["create", "apply"])
def test_broken_manifest(kubectl: Kubectl, verb: str, broken: Obj) -> None:
    kubectl.write("a.yaml", broken)
    kubectl(verb, "-f", "a.yaml")


@pytest.mark.parametrize("validate", ["true", "strict", "warn", "false"])
@pytest.mark.parametrize("verb", ["create", "apply"])
def test_unknown_and_duplicate_fields(kubectl: Kubectl, verb: str, validate: str) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  nome: b\ndata:\n  x: '1'\n  x: '2'\nmore: {}\n"
    kubectl(verb, "-f", "-", f"--validate={validate}", stdin=text)
    kubectl("get", "cm", "a", "-o", "jsonpath={.data}")


def test_create_with_a_generated_name_on_dry_run(kubectl: Kubectl) -> None:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}}
    kubectl.write("a.yaml", made)
    kubectl("apply", "-f", "a.yaml", code=1)


# --- apply, client side ----------------------------------------------------------------------------------------------


def test_apply_creates_changes_and_leaves_alone(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", cm("a", x="1", y="1"), deployment("d"))
    kubectl("apply", "-f", "a.yaml", code=0)
    shown(kubectl, "cm/a", "deploy/d")
    kubectl("apply", "-f", "a.yaml", code=0)
    changed = deployment("d", 3)
    changed["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "example.com/side:1"})
    kubectl.write("a.yaml", cm("a", x="2"), changed)
    kubectl("apply", "-f", "a.yaml", code=0)
    shown(kubectl, "cm/a", "deploy/d")


def test_apply_of_a_container_that_goes(kubectl: Kubectl) -> None:
    two = deployment("d")
    two["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "example.com/side:1"})
    kubectl.write("a.yaml", two)
    kubectl("apply", "-f", "a.yaml", code=0)
    kubectl.write("a.yaml", deployment("d"))
    kubectl("apply", "-f", "a.yaml", code=0)
    shown(kubectl, "deploy/d")


def test_apply_on_what_was_created_warns(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", cm("a", x="1"))
    kubectl("create", "-f", "a.yaml", code=0)
    kubectl("apply", "-f", "a.yaml", code=0)
    shown(kubectl, "cm/a")


def test_apply_prune(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", cm("a", {"set": "one"}), cm("b", {"set": "one"}))
    kubectl("apply", "-f", "a.yaml", code=0)
    kubectl.write("a.yaml", cm("a", {"set": "one"}))
    kubectl("apply", "-f", "a.yaml", "--prune", "-l", "set=one", "--prune-allowlist=core/v1/ConfigMap", code=0)
    kubectl("get", "cm", "-l", "set=one", "-o", "name", code=0)


def test_apply_with_an_apply_set(kubectl: Kubectl) -> None:
    kubectl.extra["KUBECTL_APPLYSET"] = "true"
    kubectl.write("a.yaml", cm("a"), cm("b"))
    kubectl("apply", "-f", "a.yaml", "--prune", "--applyset=things", code=0)
    kubectl.write("a.yaml", cm("a"))
    kubectl("apply", "-f", "a.yaml", "--prune", "--applyset=things", code=0)
    kubectl("get", "cm,secret", "-o", "name", code=0)


def test_last_applied(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", cm("a", x="1"))
    kubectl("create", "-f", "a.yaml", code=0)
    kubectl("apply", "view-last-applied", "cm/a")
    kubectl("apply", "set-last-applied", "-f", "a.yaml")
    kubectl("apply", "set-last-applied", "-f", "a.yaml", "--create-annotation", code=0)
    kubectl("apply", "view-last-applied", "cm/a", "-o", "json", code=0)
    kubectl.editor = "sed -i s/1/2/"
    kubectl("apply", "edit-last-applied", "cm/a")
    kubectl("apply", "view-last-applied", "cm/a")


def test_apply_kustomization(kubectl: Kubectl) -> None:
    kubectl.write("k/a.yaml", cm("a", x="1"), deployment("d"))
    generated = [{"name": "made", "literals": ["k=v"]}]
    kubectl.write(
        "k/kustomization.yaml",
        {"resources": ["a.yaml"], "namePrefix": "pre-", "commonLabels": {"from": "k"}, "configMapGenerator": generated},
    )
    kubectl("apply", "-k", "k", code=0)
    kubectl("get", "-k", "k", code=0)
    kubectl("diff", "-k", "k", code=0)
    kubectl("delete", "-k", "k", code=0)


def test_apply_with_force_recreates(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", service("a", clusterIP="None"))
    kubectl("apply", "-f", "a.yaml", code=0)
    kubectl.write("a.yaml", service("a"))
    kubectl("apply", "-f", "a.yaml", code=0)
    kubectl.write("a.yaml", service("a", clusterIP="None"))
    kubectl("apply", "-f", "a.yaml")
    kubectl("apply", "-f", "a.yaml", "--force")
    kubectl("get", "svc", "a")


# --- apply, server side ----------------------------------------------------------------------------------------------


def test_server_side_apply_and_conflict(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", cm("a", x="1"))
    kubectl("apply", "--server-side", "-f", "a.yaml", code=0)
    kubectl.write("a.yaml", cm("a", x="2"))
    kubectl("apply", "--server-side", "--field-manager=other", "-f", "a.yaml", code=1)
    kubectl("apply", "--server-side", "--field-manager=other", "-f", "a.yaml", "--force-conflicts", code=0)
    shown(kubectl, "cm/a")
    kubectl("apply", "--server-side", "-f", "a.yaml", "--dry-run=server", "-o", "yaml", code=0)


def test_server_side_apply_takes_over_from_client_side(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", deployment("d", 2))
    kubectl("apply", "-f", "a.yaml", code=0)
    kubectl.write("a.yaml", deployment("d", 3))
    kubectl("apply", "--server-side", "-f", "a.yaml", code=0)
    shown(kubectl, "deploy/d")
    kubectl("apply", "-f", "a.yaml", code=0)
    shown(kubectl, "deploy/d")


def test_server_side_apply_of_several_kinds(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", cm("a"), secret("s", k="v"), service("svc"), pod("p"))
    kubectl("apply", "--server-side", "-f", "a.yaml", code=0)
    shown(kubectl, "cm/a", "secret/s", "svc/svc", "pod/p")
    kubectl("apply", "--server-side", "-f", "a.yaml", code=0)


# --- diff, edit ------------------------------------------------------------------------------------------------------

_paths = without_lines(r"^(?:diff|---|\+\+\+) ")


@pytest.mark.parametrize("more", [[], ["--server-side"]])
def test_diff(kubectl: Kubectl, more: list[str]) -> None:
    kubectl.write("a.yaml", cm("a", x="1"), deployment("d"))
    kubectl("diff", *more, "-f", "a.yaml", shape=_paths, code=1)
    kubectl("apply", *more, "-f", "a.yaml", code=0)
    kubectl("diff", *more, "-f", "a.yaml", shape=_paths, code=0)
    kubectl.write("a.yaml", cm("a", x="2"), deployment("d", 5))
    kubectl("diff", *more, "-f", "a.yaml", shape=_paths, code=1)


@pytest.mark.parametrize(
    "editor",
    [
        pytest.param("sed -i s/one/two/", id="change"),
        pytest.param("true", id="nothing"),
        pytest.param("sed -i s/ConfigMap/Nope/", id="kind"),
        pytest.param("sed -i s/^data:/dota:/", id="unknown field"),
        pytest.param("sed -i d", id="emptied"),
        pytest.param("false", id="editor fails"),
        pytest.param("sed -i 's/  name: a/  name: b/'", id="name"),
    ],
)
def test_edit(kubectl: Kubectl, editor: str) -> None:
    kubectl.apply(cm("a", x="one"))
    kubectl.editor = editor
    kubectl("edit", "cm/a", shape=without_lines("/tmp/kubectl-edit"))
    shown(kubectl, "cm/a")


# --- patch, replace --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"example.com/side:1"}]}}}}'),
        ("strategic", '{"spec":{"template":{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}}}'),
        ("strategic", '{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}'),
        ("strategic", '{"metadata":{"labels":{"a":"b"}}}'),
        ("merge", '{"spec":{"replicas":4,"strategy":null}}'),
        ("merge", '{"spec":{"template":{"spec":{"containers":[]}}}}'),
        ("merge", '{"spec":{"selector":{"matchLabels":{"app":"z"}}}}'),
        ("json", '[{"op":"replace","path":"/spec/replicas","value":2}]'),
        ("json", '[{"op":"test","path":"/spec/replicas","value":9}]'),
        ("json", '[{"op":"remove","path":"/spec/nope"}]'),
        ("json", '[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]'),
        ("json", '{"not":"a list"}'),
        ("merge", '{"spec":{"nope":1}}'),
        ("merge", "not json"),
        ("merge", "{}"),
    ],
)
def test_patch(kubectl: Kubectl, kind: str, patch: str) -> None:
    kubectl.apply(deployment("d", 1))
    kubectl("patch", "deploy", "d", f"--type={kind}", "-p", patch)
    shown(kubectl, "deploy/d")


def test_patch_to_a_wrong_type(kubectl: Kubectl) -> None:
    kubectl.apply(deployment("d", 1))
    # The message quotes the whole object, whose keys come in no particular order.
    quoted = re.compile(r'(?<=Invalid value: )"\{.*\}"(?=: )')
    patch = '{"spec":{"replicas":"many"}}'
    kubectl("patch", "deploy", "d", "--type=merge", "-p", patch, shape=lambda text: quoted.sub("<object>", text), code=1)


def test_patch_of_status_and_scale(kubectl: Kubectl) -> None:
    kubectl.apply(deployment("d", 1))
    kubectl("patch", "deploy", "d", "--subresource=status", "-p", '{"status":{"replicas":1,"observedGeneration":1}}', code=0)
    kubectl("patch", "deploy", "d", "--subresource=scale", "--type=merge", "-p", '{"spec":{"replicas":7}}', code=0)
    shown(kubectl, "deploy/d")
    kubectl("patch", "cm", "nope", "-p", "{}", code=1)


def test_replace(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", cm("a", x="1"))
    kubectl("replace", "-f", "a.yaml", code=1)
    kubectl("create", "-f", "a.yaml", code=0)
    kubectl.write("a.yaml", cm("a", y="2"))
    kubectl("replace", "-f", "a.yaml", code=0)
    shown(kubectl, "cm/a")


def test_replace_by_force(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", service("a"))
    kubectl("create", "-f", "a.yaml", code=0)
    kubectl.write("a.yaml", service("a", clusterIP="None"))
    kubectl("replace", "-f", "a.yaml", code=1)
    kubectl("replace", "--force", "-f", "a.yaml", code=0)
    kubectl("get", "svc", "a", code=0)
    kubectl("replace", "--force", "-f", "a.yaml", "--grace-period=0", code=0)


# --- label, annotate, scale ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["label", "annotate"])
def test_label_and_annotate(kubectl: Kubectl, verb: str) -> None:
    kubectl.apply(cm("a", {"is": "here"}), cm("b"))
    kubectl(verb, "cm/a", "x=1", code=0)
    kubectl(verb, "cm/a", "x=2", code=1)
    kubectl(verb, "cm/a", "x=2", "--overwrite", code=0)
    kubectl(verb, "cm/a", "x=2", "--overwrite", code=0)
    kubectl(verb, "cm/a", "--list", shape=sorted_lines, code=0)
    kubectl(verb, "cm/a", "x-", code=0)
    kubectl(verb, "cm/a", "nope-", code=0)
    kubectl(verb, "cm/a", "-bad-=1", code=1)
    kubectl(verb, "cm", "-l", "is=here", "sel=1", code=0)
    kubectl(verb, "cm", "--all", "all=1", shape=sorted_lines, code=0)
    kubectl(verb, "cm/a", "v=1", "--resource-version=1", code=1)
    kubectl(verb, "cm/nope", "v=1", code=1)
    shown(kubectl, "cm/a")


@pytest.mark.parametrize("made", [deployment("x", 1), replica_set("x", 1)], ids=["deployment", "replicaset"])
def test_scale(kubectl: Kubectl, made: Obj) -> None:
    kubectl.apply(made)
    what = f"{made['kind'].lower()}/x"
    kubectl("scale", what, "--replicas=3", code=0)
    kubectl("scale", what, "--replicas=4", "--current-replicas=2", code=1)
    kubectl("scale", what, "--replicas=4", "--current-replicas=3", code=0)
    kubectl("scale", what, "--replicas=-1", code=1)
    kubectl("scale", what, "--replicas=9", "--resource-version=1", code=1)
    kubectl("scale", "cm/nope", "--replicas=1", code=1)
    shown(kubectl, what)


def test_autoscale_is_refused_the_same_way_where_there_is_nothing_to_scale(kubectl: Kubectl) -> None:
    kubectl("autoscale", "deployment", "nope", "--max=3", code=1)


# --- delete ----------------------------------------------------------------------------------------------------------


def collector_has_seen(kubectl: Kubectl) -> None:
    """Return when both collectors know every ConfigMap there is: kube-controller-manager's makes orphans only of those that it
    has heard of, and takes the others away. Once it has dealt with one that came later it knows the earlier ones.
    """
    kubectl.apply(owned_by_nobody(cm("marker")))
    kubectl("wait", "--for=delete", "cm/marker", "--timeout=90s", compare=False, code=0)


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_delete_cascades(kubectl: Kubectl, cascade: str) -> None:
    kubectl.apply(deployment("d"))
    for side in SIDES:
        uid = kubectl.on(side, "get", "deploy", "d", "-o", "jsonpath={.metadata.uid}").out
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": uid, "blockOwnerDeletion": True}
        child = cm("child")
        child["metadata"]["ownerReferences"] = [owner]
        made = kubectl.on(side, "create", "-f", "-", stdin=yaml.safe_dump(child))
        assert made.code == 0, made.err
    if cascade == "orphan":
        collector_has_seen(kubectl)
    kubectl("delete", "deploy", "d", f"--cascade={cascade}", code=0)
    kubectl("get", "deploy", "d", code=1)
    if cascade != "orphan":
        # It says so when it has waited, and nothing when there is nothing to wait for any more.
        kubectl("wait", "--for=delete", "cm/child", "--timeout=90s", compare=False, code=0)
        kubectl("get", "cm", "child", code=1)
        return
    # Time enough for a collector that is wrong.
    time.sleep(1)
    shown(kubectl, "cm/child")


def test_delete_by_name_selector_file_and_all(kubectl: Kubectl) -> None:
    kubectl.write("a.yaml", cm("f1"), cm("f2"))
    kubectl.apply(cm("a"), cm("b", {"is": "b"}), cm("c"), cm("f1"), cm("f2"), secret("s"), secret("t"))
    kubectl("delete", "cm", "a", code=0)
    kubectl("delete", "cm", "a", code=1)
    kubectl("delete", "cm", "a", "--ignore-not-found", code=0)
    kubectl("delete", "cm", "--selector", "is=b", code=0)
    kubectl("delete", "cm", "--selector", "is=b", code=0)
    kubectl("delete", "-f", "a.yaml", code=0)
    kubectl("delete", "cm/c", "secret/s", code=0)
    kubectl("delete", "secret", "--all", code=0)
    kubectl("delete", "cm", "--field-selector", "metadata.name=nope", code=0)
    kubectl("delete", "cm", code=1)
    kubectl("delete", "nope", "a", code=1)
    kubectl("get", "cm,secret", "-o", "name")


def test_delete_on_dry_run_and_without_waiting(kubectl: Kubectl) -> None:
    held = cm("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    kubectl.apply(cm("a"), held)
    kubectl("delete", "cm", "a", "--dry-run=server", code=0)
    kubectl("delete", "cm", "a", "--dry-run=client", code=0)
    kubectl("get", "cm", "a", "-o", "name", code=0)
    kubectl("delete", "cm", "held", "--wait=false", code=0)
    shown(kubectl, "cm/held")
    kubectl("delete", "cm", "held", "--wait=true", "--timeout=5s", code=1)
    with kubectl.meanwhile("delete", "cm", "held", "--wait=true", "--timeout=90s"):
        kubectl("patch", "cm", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}', code=0)
    kubectl("get", "cm", "held", code=1)


def test_delete_pod_with_grace(kubectl: Kubectl) -> None:
    kubectl.apply(pod("p", node="elsewhere"), pod("q"), pod("r", node="elsewhere"))
    kubectl("delete", "pod", "p", "--wait=false", code=0)
    kubectl("get", "pod", "p", code=0)
    kubectl("delete", "pod", "p", "--now", "--wait=false", code=0)
    kubectl("delete", "pod", "p", "--grace-period=0", "--force", code=0)
    kubectl("delete", "pod", "q", code=0)
    kubectl("get", "pods", "p", "q", code=1)


def test_delete_namespace(kubectl: Kubectl) -> None:
    name = f"{kubectl.ns}-x"
    kubectl("create", "ns", name, code=0)
    kubectl("create", "cm", "a", "-n", name, code=0)
    kubectl("delete", "ns", name, "--timeout=90s", code=0, seconds=120)
    kubectl("get", "ns", name, code=1)
    kubectl("get", "cm", "-n", name)
