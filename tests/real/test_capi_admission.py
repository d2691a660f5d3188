"""The upstream Cluster API manager's webhooks fill in and refuse what ours do, in the same words.

The same AdmissionReviews go to both: the table of `tests/unit/capi/admission`, and valid objects changed at random. What differs
on purpose is in `DIFFERENCES`.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.capi.admission import admitted
from remuda.kube.encoding import jsonpatch
from remuda.kube.objects import dig, without_path
from remuda.runtime import webhook_server
from tests.api.harness import RemudaProcess
from tests.e2e.upstream_capi import Manager
from tests.real import need
from tests.unit.capi.admission.cases import DEFAULTING, VALID, Case, Defaulting, Obj, case_name, merged, new_object, old_object
from tests.unit.capi.admission.changes import changed, random_template
from tests.unit.capi.admission.checks import CHECKING, TOPOLOGY

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(900)]

TYPES = {each.kind: each for each in admitted(None)}
SEED = 20_260_801
RANDOM_OBJECTS = 3000 if os.environ.get("REMUDA_SOAK") == "1" else 200  # of each kind

# (what, why): each is met by a test below.
DIFFERENCES = (
    ("Cluster with spec.topology", "upstream names a feature flag that Remuda does not have; ours says what to do instead"),
    ("Cluster is never defaulted", "upstream only fills in managed topologies, which are refused"),
    ("spec.template.metadata of a MachineSet", "upstream writes it down empty, which its own schema then refuses; ours does not"),
    ("names with loops, variables, nested templates", "nobody names machines so; ours says what it does not support"),
    ("what has the wrong type", "upstream fails to decode it; ours leaves it to the schema, which names the field"),
)


class Upstream:
    """One connection to the manager's webhook server."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        context = ssl.create_default_context(cafile=str(manager.directory / "certs" / "ca.crt"))
        self._connection = http.client.HTTPSConnection("127.0.0.1", manager.webhook_port, context=context, timeout=240)

    def ask(self, review: Obj, *, mutating: bool) -> Obj:
        verb, kind = "mutate" if mutating else "validate", review["request"]["kind"]["kind"].lower()
        path = f"/{verb}-cluster-x-k8s-io-v1beta2-{kind}"
        try:
            self._connection.request("POST", path, json.dumps(review).encode(), {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            body = answer.read()
        except OSError:
            # Or no later test could use it.
            self._connection.close()
            raise
        assert answer.status == 200, (answer.status, body)
        found: Obj = json.loads(body)
        return found


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    need.programs("capi")
    directory = Path(tmp_path_factory.mktemp("capi-admission"))
    server = RemudaProcess(directory / "data")
    server.start()
    gates = "--feature-gates=MachineTaintPropagation=true,ClusterTopology=false"
    manager = Manager("admission", server.endpoint, server.kubeconfig, directory, gates)
    try:
        manager.start()
        yield Upstream(manager)
    finally:
        manager.stop()
        server.stop()


# --- asking ------------------------------------------------------------------------------------------------------------------


def review(kind: str, obj: Obj, old: Obj | None) -> Obj:
    of = TYPES[kind]
    metadata = obj.get("metadata") or {}
    request: Obj = {
        "uid": "1",
        "kind": {"group": of.group, "version": of.version, "kind": kind},
        "resource": {"group": of.group, "version": of.version, "resource": of.resource},
        "name": metadata.get("name", ""),
        "namespace": metadata.get("namespace", ""),
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "who"},
        "object": obj,
        "oldObject": old,
        "dryRun": False,
        "options": None,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def outcome(answer: Obj, obj: Obj) -> Obj:
    """What a client would notice of the answer."""
    response = answer["response"]
    found: Obj = {"allowed": response["allowed"], "warnings": response.get("warnings") or []}
    if response["allowed"]:
        patch = json.loads(base64.b64decode(response["patch"])) if response.get("patch") else []
        found["object"] = without_empty_metadata(jsonpatch.apply(obj, patch))
        return found
    status = response.get("status") or {}
    details = status.get("details") or {}
    found |= {key: status.get(key) for key in ("code", "reason")}
    found["message"] = in_no_order(status.get("message") or "", details.get("causes") or [])
    found["details"] = {key: details.get(key) for key in ("name", "group", "kind")}
    found["causes"] = sorted(
        (cause.get("field"), cause.get("reason"), cause.get("message")) for cause in details.get("causes") or []
    )
    return found


def without_empty_metadata(obj: Obj) -> Obj:
    if dig(obj, "spec", "template", "metadata") != {}:
        return obj
    return without_path(obj, ("spec", "template", "metadata"))


def in_no_order(message: str, causes: list[Obj]) -> str:
    """The message without its causes: Go walks maps in no order, so several errors about one map come in any."""
    for cause in sorted(causes, key=lambda cause: len(cause["message"]), reverse=True):
        message = message.replace(f"{cause['field']}: {cause['message']}", "")
    return message


def compare(upstream: Upstream, kind: str, obj: Obj, old: Obj | None, *, mutating: bool) -> Obj:
    asked = review(kind, obj, old)
    ours = outcome(webhook_server.admission(asked, TYPES[kind], mutating=mutating), obj)
    theirs = outcome(upstream.ask(asked, mutating=mutating), obj)
    assert ours == theirs, f"{json.dumps(obj)}\nbefore: {json.dumps(old)}\nours:   {ours}\ntheirs: {theirs}"
    return ours


# --- the table ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", DEFAULTING, ids=case_name)
def test_upstream_fills_in_what_the_table_says(upstream: Upstream, case: Defaulting) -> None:
    obj = new_object(case)
    found = compare(upstream, case.kind, obj, old_object(case), mutating=True)
    if case.refused:
        assert found["message"] == case.refused
    else:
        assert found["object"] == merged(obj, case.filled)


@pytest.mark.parametrize("case", CHECKING, ids=case_name)
def test_upstream_refuses_what_the_table_says(upstream: Upstream, case: Case) -> None:
    found = compare(upstream, case.kind, new_object(case), old_object(case), mutating=False)
    errors = [f"{field}: {message}" for field, _, message in found.get("causes", ())]
    assert sorted(errors) == sorted(case.errors)  # type: ignore[union-attr]


# --- at random ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", VALID)
def test_upstream_agrees_about_random_objects(upstream: Upstream, kind: str) -> None:
    chance = random.Random(f"{SEED} {kind}")
    refused = 0
    for _ in range(RANDOM_OBJECTS):
        obj = changed(VALID[kind], chance)
        old = changed(VALID[kind], chance) if chance.random() < 0.4 else None
        if TYPES[kind].default is not None:
            filled = compare(upstream, kind, obj, old, mutating=True)
            if filled["allowed"] and chance.random() < 0.5:
                obj = filled["object"]
        refused += not compare(upstream, kind, obj, old, mutating=False)["allowed"]
    assert RANDOM_OBJECTS * 0.2 < refused < RANDOM_OBJECTS * 0.95


def test_upstream_agrees_about_random_templates_of_names(upstream: Upstream) -> None:
    chance = random.Random(SEED)
    for _ in range(RANDOM_OBJECTS * 2):
        template = random_template(chance)
        obj = merged(VALID["MachineSet"], {"spec": {"machineNaming": {"template": template}}})
        ours = webhook_server.admission(review("MachineSet", obj, None), TYPES["MachineSet"], mutating=False)["response"]
        if ours["allowed"] or "is not supported in machineNaming.template" not in ours["status"]["message"]:
            compare(upstream, "MachineSet", obj, None, mutating=False)


# --- what differs ------------------------------------------------------------------------------------------------------------


def test_upstream_refuses_a_topology_too_but_for_a_flag(upstream: Upstream) -> None:
    asked = review("Cluster", merged(VALID["Cluster"], TOPOLOGY), None)
    ours = webhook_server.admission(asked, TYPES["Cluster"], mutating=False)["response"]
    theirs = upstream.ask(asked, mutating=False)["response"]
    fields = [[cause["field"] for cause in answer["status"]["details"]["causes"]] for answer in (ours, theirs)]
    assert fields == [["spec.topology"], ["spec.topology"]]
    assert "feature flag" in theirs["status"]["message"]
    assert "set spec.controlPlaneRef and spec.infrastructureRef" in ours["status"]["message"]


def test_upstream_fills_in_nothing_of_a_plain_cluster(upstream: Upstream) -> None:
    answer = upstream.ask(review("Cluster", VALID["Cluster"], None), mutating=True)["response"]
    assert answer["allowed"]
    assert not answer.get("patch")


def test_upstream_fails_to_decode_what_we_leave_to_the_schema(upstream: Upstream) -> None:
    asked = review("Machine", merged(VALID["Machine"], {"spec": {"version": 3}}), None)
    assert webhook_server.admission(asked, TYPES["Machine"], mutating=True)["response"]["allowed"]
    theirs = upstream.ask(asked, mutating=True)["response"]
    assert theirs["status"]["code"] == 400
    assert re.search("cannot unmarshal", theirs["status"]["message"])
