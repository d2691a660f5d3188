"""Each built-in kind of the management API has an effect, a warning, or a line in docs/api-compatibility.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.admission.without_effect import CALLERS, KINDS, WithoutEffect
from remuda.apiserver.builtin import registration
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.scheme.builtin_types import Resource
from remuda.apiserver.server import Config, Server
from remuda.app import embedded_gateway
from remuda.app.controllers import GROUPS, Program
from remuda.kcm import workloads
from remuda.kube.admission_attributes import CREATE, UPDATE, Attributes
from remuda.kube.authorization.users import User
from remuda.kube.clock import Rng, VirtualClock
from remuda.lab.distro.cluster import apiserver
from remuda.runtime import Manager

Obj = dict[str, Any]

PAGE = (Path(__file__).parents[3] / "docs" / "api-compatibility.md").read_text()
SERVED = registration.served()
# What acts on a kind: controllers by their names in the table of `serve`, plug-ins of admission by theirs.
ACTED_ON = {
    "apiservices": "autoregister",
    "clusterroles": "clusterrole-aggregation-controller",
    "customresourcedefinitions": "crd-conditions",
    "limitranges": "LimitRanger",
    "mutatingwebhookconfigurations": "MutatingAdmissionWebhook",
    "namespaces": "namespace-controller",
    "poddisruptionbudgets": "disruption-controller",
    "priorityclasses": "Priority",
    "resourcequotas": "resourcequota-controller",
    "secrets": "serviceaccount-token-controller",
    "serviceaccounts": "serviceaccount-controller",
    "validatingwebhookconfigurations": "ValidatingAdmissionWebhook",
    # The authorizer reads them; the plug-in protects them.
    **dict.fromkeys(("clusterrolebindings", "rolebindings", "roles"), "RBACEscalation"),
}


def documented() -> set[str]:
    """The resources in the table's rows."""
    section = PAGE.split("### Stored without effect")[1].split("\n### ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ") and "---" not in line]
    return {name for row in rows for name in re.findall(r"`([a-z]+)`", row)}


async def running() -> set[str]:
    """The names of the controllers of `serve`, and of the plug-ins of its API."""
    server = await Server.open(Config(data_dir=None))
    try:
        embedded_gateway.install_rules(server)
        plugins = {plugin.name for plugin in server.api.admission.plugins}
    finally:
        await server.close()
    assert "WithoutEffect" in plugins
    return plugins | {row.name for group in GROUPS if Program.SERVE in group.programs for row in group.rows}


def attributes(kind: Resource, obj: Obj, old: Obj | None = None) -> Attributes:
    operation = CREATE if old is None else UPDATE
    return Attributes(operation, kind.group, kind.version, kind.name, kind.kind, "default", "x", User("u"), obj=obj, old=old)


async def test_a_simulated_cluster_acts_on_a_kind_or_warns_of_it() -> None:
    """Of the kinds without effect on the management API it runs workloads, pods and Services; it warns of all others."""
    server = await Server.open(Config(data_dir=None))
    try:
        found = workloads.controllers(Manager(InProcessClient(server), VirtualClock(), Rng(1)))
    finally:
        await server.close()
    run = {(each.controller.primary.resource.group, each.controller.primary.resource.resource) for each in found}
    assert set(KINDS) - run - {("", "pods"), ("", "services")} == set(apiserver.WITHOUT_EFFECT)


async def test_a_simulated_cluster_says_what_is_missing_and_what_to_do() -> None:
    asked = attributes(kind_of("cronjobs"), {"metadata": {"name": "x"}})
    await WithoutEffect(apiserver.WITHOUT_EFFECT, ()).validate(asked)
    assert asked.warnings == [
        "CronJob x is stored without effect: in this simulated cluster no controller makes Jobs of it; create a Job"
    ]


async def warnings(kind: Resource, obj: Obj, old: Obj | None = None) -> list[str]:
    asked = attributes(kind, obj, old)
    await WithoutEffect().validate(asked)
    return asked.warnings


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: f"{kind.name}.{kind.group}")
async def test_each_kind_has_an_effect_or_says_that_it_has_none(kind: Resource) -> None:
    if kind.group in ("authentication.k8s.io", "authorization.k8s.io"):
        # A review is its own answer.
        return
    warned = bool(await warnings(kind, {"metadata": {"name": "x"}}))
    assert warned == ((kind.group, kind.name) in KINDS)
    if kind.name in ACTED_ON:
        assert not warned
    else:
        assert kind.name in documented(), f"no word about {kind.name}"


async def test_what_is_said_to_act_is_there() -> None:
    assert set(ACTED_ON.values()) <= await running()


def test_only_served_kinds_are_named() -> None:
    names = {kind.name for kind in SERVED}
    assert names >= documented() | set(ACTED_ON)
    assert {(kind.group, kind.name) for kind in SERVED} >= set(KINDS) | CALLERS


def kind_of(name: str) -> Resource:
    return next(kind for kind in SERVED if kind.name == name)


async def test_a_warning_says_what_is_missing_and_what_to_do() -> None:
    assert await warnings(kind_of("deployments"), {"metadata": {"name": "web"}}) == [
        "Deployment x is stored without effect: this API runs no pods and no workload controllers; create it in a cluster"
    ]


async def test_an_update_repeats_no_warning() -> None:
    assert await warnings(kind_of("deployments"), {}, {}) == []


async def test_a_job_with_a_manager_is_not_ours_to_warn_of() -> None:
    assert await warnings(kind_of("jobs"), {"spec": {"managedBy": "machines.remuda.dev/runner"}}) == []


SERVICE = {"service": {"namespace": "a", "name": "b"}}
NAMING = {
    "validatingwebhookconfigurations": {"webhooks": [{"clientConfig": {"url": "https://h"}}, {"clientConfig": SERVICE}]},
    "mutatingwebhookconfigurations": {"webhooks": [{"clientConfig": SERVICE}]},
    "customresourcedefinitions": {"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": SERVICE}}}},
    "apiservices": {"spec": SERVICE},
}


@pytest.mark.parametrize("name", NAMING)
async def test_a_service_that_would_be_called_is_warned_of_once(name: str) -> None:
    obj = NAMING[name]
    found = await warnings(kind_of(name), obj)
    assert len(found) == 1
    assert "service: this API" in found[0]
    assert await warnings(kind_of(name), obj, {}) == found
    assert await warnings(kind_of(name), obj, obj) == []
