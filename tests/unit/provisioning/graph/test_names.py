"""Names and hashes, each against its rule written out by hand (docs/reference/objects.md#names, docs/reference/objects.md#graph);
a change of them replaces machines."""

from __future__ import annotations

import hashlib

import pytest

from remuda.provisioning.well_known import (
    bootstrap_hash,
    hashed_name,
    pool_name,
    resource_of,
    shared_bootstrap_name,
    template_hash,
    template_kind,
)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_names_of_short_parts_are_the_parts() -> None:
    assert pool_name("demo", "cp") == "demo-cp"
    assert shared_bootstrap_name("demo") == "demo-bootstrap-template"
    assert hashed_name("demo-cp", "1a2b3c4d") == "demo-cp-1a2b3c4d"


def test_long_names_are_cut_twice_where_they_are_put_together_twice() -> None:
    cluster, pool = "c" * 40, "p" * 40
    full = f"{cluster}-{pool}"
    base = f"{full[:57]}-{sha(full)[:5]}"
    assert pool_name(cluster, pool) == base and len(base) == 63
    again = f"{base}-1a2b3c4d"
    assert again[56].isalnum()
    assert hashed_name(base, "1a2b3c4d") == f"{again[:57]}-{sha(again)[:5]}"


def test_a_template_is_named_after_the_fields_that_say_something() -> None:
    fields = {
        "userdata": "#cloud-config\nrun: a && b > c",
        "image": "",
        "tags": [],
        "sshPort": None,
        "privileged": False,
        "count": 0,
        "empty": {},
        "common": {"labels": {"a": "b"}},
    }
    said = '{"count":0,"empty":{},"privileged":false,"userdata":"#cloud-config\\nrun: a \\u0026\\u0026 b \\u003e c"}'
    assert template_hash("demo-cp", fields) == sha("demo-cp" + said)[:8]


def test_the_order_of_fields_does_not_matter() -> None:
    assert template_hash("demo-cp", {"b": "2", "a": "1"}) == template_hash("demo-cp", {"a": "1", "b": "2"})


def test_the_same_fields_are_another_template_in_another_pool() -> None:
    assert template_hash("demo-cp", {"a": "1"}) != template_hash("demo-workers", {"a": "1"})


@pytest.mark.parametrize(
    ("fields", "golden"),
    [
        ({}, "2873b6fe"),
        ({"image": "rancher/systemd-node:v0.0.5"}, "05fac00a"),
    ],
)
def test_hashes_stay_what_they_are(fields: dict[str, str], golden: str) -> None:
    assert template_hash("demo-cp", fields) == golden


def test_a_bootstrap_template_is_named_after_what_the_user_adds() -> None:
    assert bootstrap_hash("demo-cp", "") == sha("demo-cp")[:8]
    assert bootstrap_hash("demo-cp", "#cloud-config") == sha("demo-cp#cloud-config")[:8]


def test_kinds_of_a_driver_are_named_after_each_other() -> None:
    assert template_kind("PodConfig") == "PodMachineTemplate"
    assert template_kind("Amazonec2Config") == "Amazonec2MachineTemplate"
    assert resource_of("rke-machine.cattle.io/v1", "PodMachineTemplate") == ("rke-machine.cattle.io", "v1", "podmachinetemplates")
    assert resource_of("rke-machine-config.cattle.io/v1", "PodConfig").resource == "podconfigs"
