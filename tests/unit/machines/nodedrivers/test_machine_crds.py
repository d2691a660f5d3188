"""The definitions of a driver's kinds, and how they may change."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.objects import dig, with_path
from remuda.machines.nodedrivers.machine_crds import UnusableField, compatible, definitions, is_current

from .test_driver_schemas import fields

Obj = dict[str, Any]
CONFIG, TEMPLATE, MACHINE = range(3)


def of(driver: str = "amazonec2", **more: Obj) -> list[Obj]:
    return definitions(driver, {"resourceFields": {**fields(driver), **more}})


def properties(definition: Obj, *path: str) -> Obj:
    found = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for name in path:
        found = found[name]["properties"]
    result: Obj = found
    return result


def test_a_driver_has_three_kinds() -> None:
    made = of()
    assert [each["metadata"]["name"] for each in made] == [
        "amazonec2configs.rke-machine-config.cattle.io",
        "amazonec2machinetemplates.rke-machine.cattle.io",
        "amazonec2machines.rke-machine.cattle.io",
    ]
    assert [each["spec"]["names"]["kind"] for each in made] == ["Amazonec2Config", "Amazonec2MachineTemplate", "Amazonec2Machine"]
    for each in made:
        assert each["metadata"]["labels"] == {
            "cluster.x-k8s.io/v1beta1": "v1",
            "cluster.x-k8s.io/v1beta2": "v1",
            "auth.cattle.io/cluster-indexed": "true",
        }
        assert each["spec"]["scope"] == "Namespaced"
    assert [("subresources" in each["spec"]["versions"][0]) for each in made] == [False, False, True]


def test_a_config_has_the_fields_at_its_top_with_defaults() -> None:
    found = properties(of()[CONFIG])
    assert found["region"]["default"] == "us-east-1"
    assert found["rootSize"] == {**found["rootSize"], "type": "string", "nullable": True, "default": "16"}
    assert found["ami"]["default"] == ""
    assert found["monitoring"] == {**found["monitoring"], "type": "boolean", "default": False}
    assert found["securityGroup"]["default"] == ["rancher-nodes"]
    assert found["securityGroup"]["nullable"] is True
    assert "default" not in found["openPort"]
    assert "providerID" not in found
    for name in ("common", "spec", "type"):
        assert found[name].keys() == {"x-kubernetes-preserve-unknown-fields", "description"}
        assert found[name]["description"].startswith("Of no effect: ")


def test_a_machine_has_them_in_its_spec_without_defaults() -> None:
    made = of()
    for found in (properties(made[MACHINE], "spec"), properties(made[TEMPLATE], "spec", "template", "spec")):
        assert set(fields("amazonec2")) | {"common", "providerID"} == found.keys()
        assert not [name for name, schema in found.items() if "default" in schema]
        assert found["common"]["properties"]["cloudCredentialSecretName"]["maxLength"] == 317
    assert properties(made[TEMPLATE], "spec")["clusterName"]["type"] == "string"
    assert set(properties(made[MACHINE], "status")) == {
        "addresses",
        "cloudCredentialSecretName",
        "cloudCredentialUID",
        "conditions",
        "driverHash",
        "driverUrl",
        "failureMessage",
        "failureReason",
        "initialization",
        "jobName",
        "ready",
    }


def test_a_password_is_a_text_that_must_not_be_null() -> None:
    found = properties(of()[CONFIG])
    assert (found["secretKey"]["type"], "nullable" in found["secretKey"]) == ("string", False)


@pytest.mark.parametrize(
    ("type_", "schema"),
    [
        ("int", {"type": "integer"}),
        ("enum", {"type": "string"}),
        ("json", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ("map[string]", {"type": "object", "nullable": True, "additionalProperties": {"type": "string", "nullable": True}}),
        ("array[int]", {"type": "array", "nullable": True, "items": {"type": "integer"}}),
    ],
)
def test_types_of_schemas_are_types_of_openapi(type_: str, schema: Obj) -> None:
    assert properties(of("azure", more={"type": type_})[MACHINE], "spec")["more"] == schema


def test_what_no_kind_can_be_made_of_is_said() -> None:
    with pytest.raises(UnusableField, match=r"the field more has the type thing"):
        of("azure", more={"type": "thing"})
    with pytest.raises(UnusableField, match="called metadata"):
        of("azure", metadata={"type": "string"})


def test_machines_that_may_run_windows_say_so() -> None:
    assert properties(of("vmwarevsphere")[CONFIG])["os"]["type"] == "string"
    assert "os" not in properties(of()[CONFIG])


def test_a_field_that_a_driver_dropped_stays_while_objects_are_there() -> None:
    before = of("azure", legacy={"type": "string", "default": {"stringValue": "x"}})
    for wanted, existing in zip(of("azure"), before, strict=True):
        assert compatible(wanted, existing) == compatible(existing, existing)
        assert not is_current(wanted, existing)
    assert properties(compatible(of("azure")[CONFIG], before[CONFIG]))["legacy"]["default"] == "x"


def test_a_field_that_became_another_thing_keeps_its_type_while_objects_are_there() -> None:
    before = of("azure", tags={"type": "string"})
    after = of("azure", tags={"type": "array[string]", "nullable": True})
    assert properties(compatible(after[MACHINE], before[MACHINE]), "spec")["tags"]["type"] == "string"


def test_a_new_field_comes_with_its_default_and_a_new_default_replaces_the_old() -> None:
    before = of("azure")
    size = {**fields("azure")["size"], "default": {"stringValue": "Standard_D4"}}
    after = of("azure", size=size, extra={"type": "string", "default": {"stringValue": "y"}})
    found = properties(compatible(after[CONFIG], before[CONFIG]))
    assert (found["extra"]["default"], found["size"]["default"]) == ("y", "Standard_D4")


def test_what_the_server_fills_in_is_no_difference() -> None:
    wanted = of("digitalocean")[MACHINE]
    served = with_path(wanted, ("spec", "conversion"), {"strategy": "None"})
    served = with_path(served, ("metadata", "resourceVersion"), "7")
    assert is_current(wanted, served)
    version = dig(served, "spec", "versions")[0]
    spoiled = with_path(version, ("schema", "openAPIV3Schema", "properties", "spec", "properties", "more"), {"type": "string"})
    assert not is_current(wanted, with_path(served, ("spec", "versions"), [spoiled]))
