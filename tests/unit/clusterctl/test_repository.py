"""The repository that clusterctl reads: its layout, its contract, and templates for every kind of machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from remuda import __version__
from remuda.app.manifests import CONTROLLERS, GATEWAY, Wishes, components, manifests
from remuda.clusterctl.providers import CORE, OURS, ProviderType
from remuda.clusterctl.repository import TEMPLATE, config, documents, files, flavors, templates
from remuda.gateway.registration.clusterctl_repository import served
from remuda.kube.encoding import yamlio
from remuda.machines.driver_registry import names

Obj = dict[str, Any]
_VARIABLE = re.compile(r"\$\{(\w+)(?::=([^}]*))?\}")
# What clusterctl always knows.
_STANDARD = {"CLUSTER_NAME", "NAMESPACE", "KUBERNETES_VERSION", "CONTROL_PLANE_MACHINE_COUNT", "WORKER_MACHINE_COUNT"}
_VALUES = {"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2", "KUBERNETES_VERSION": "v1.34.1+remuda1"}


def filled(text: str) -> list[Obj]:
    """The objects of a template, its variables replaced as clusterctl does."""
    named = _VARIABLE.sub(lambda found: found[2] or _VALUES.get(found[1], "x"), text)
    return list(yamlio.loads_all(named))


def test_each_provider_has_a_directory_with_metadata_and_components() -> None:
    found = files()
    for provider, component in zip(
        (CORE, *OURS),
        ("core", "bootstrap", "control-plane", "infrastructure"),
        strict=True,
    ):
        directory = f"{provider.label}/{provider.version}"
        metadata = yamlio.loads(found[f"{directory}/metadata.yaml"])
        major, minor = provider.version.removeprefix("v").split(".")[:2]
        assert metadata["kind"] == "Metadata"
        assert metadata["releaseSeries"] == [{"major": int(major), "minor": int(minor), "contract": "v1beta2"}]
        assert list(yamlio.loads_all(found[f"{directory}/{component}-components.yaml"])) == [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "remuda-system"}}
        ]


def test_the_configuration_names_every_provider_by_the_path_of_its_components() -> None:
    listed = yamlio.loads(config(Path("/srv/repo")))["providers"]
    assert [each["type"] for each in listed] == [provider.type.value for provider in (CORE, *OURS)]
    for each in listed:
        assert each["url"].removeprefix("/srv/repo/") in files()


def test_what_is_to_be_installed_is_what_remuda_manifests_prints() -> None:
    wishes = Wishes(image="registry.example.com/remuda:1", hostname="remuda.example.com")
    parts = components(wishes)
    together = [*parts[ProviderType.CORE], *parts[ProviderType.INFRASTRUCTURE]]
    assert sorted(map(str, together)) == sorted(map(str, manifests(wishes)[1:]))
    deployments = {
        kind: [obj["metadata"]["name"] for obj in found if obj["kind"] == "Deployment"] for kind, found in parts.items()
    }
    assert deployments == {ProviderType.CORE: [CONTROLLERS], ProviderType.INFRASTRUCTURE: [GATEWAY]}
    text = files(parts)[f"infrastructure-remuda/v{__version__}/infrastructure-components.yaml"]
    assert [obj["kind"] for obj in yamlio.loads_all(text)].count("Namespace") == 1


def test_documents_are_separate() -> None:
    assert list(yamlio.loads_all(documents([{"a": 1}, {"b": 2}]))) == [{"a": 1}, {"b": 2}]


def test_every_driver_of_ours_has_a_template() -> None:
    assert {"local", *flavors()} >= set(names())
    assert {"custom", "foreign", "kubeadm"} <= set(flavors())


@pytest.mark.parametrize("name", templates())
def test_a_template_makes_one_cluster_in_the_namespace_that_is_asked_for(name: str) -> None:
    objects = filled(templates()[name])
    assert [obj["kind"] for obj in objects].count("Cluster") == 1
    assert {obj["metadata"]["name"] for obj in objects} == {"x"}
    assert {obj["metadata"]["namespace"] for obj in objects} == {"x"}


@pytest.mark.parametrize("name", [name for name in templates() if not name.endswith("-kubeadm.yaml")])
def test_a_pool_names_a_config_that_the_template_has(name: str) -> None:
    objects = filled(templates()[name])
    (cluster,) = [obj for obj in objects if obj["kind"] == "Cluster"]
    assert cluster["spec"]["kubernetesVersion"] == "v1.34.1+remuda1"
    there = {(obj["kind"], obj["metadata"]["name"]) for obj in objects}
    pools = cluster["spec"]["rkeConfig"].get("machinePools") or []
    assert {(pool["machineConfigRef"]["kind"], pool["machineConfigRef"]["name"]) for pool in pools} <= there
    assert bool(pools) != name.endswith("-custom.yaml")


def test_the_default_needs_nothing_but_what_clusterctl_knows() -> None:
    needed = {name for name, default in _VARIABLE.findall(templates()[TEMPLATE]) if not default}
    assert needed <= _STANDARD


def test_the_server_has_the_repository_and_the_templates_by_their_names_alone() -> None:
    assert served()[TEMPLATE] == files()[f"infrastructure-remuda/v{__version__}/{TEMPLATE}"]
    assert files().items() <= served().items()
