"""What fields become of flags, as Rancher's machine configs have them."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.machines.nodedrivers import known_flags
from remuda.machines.nodedrivers.builtin_drivers import RANCHERS
from remuda.machines.nodedrivers.driver_schemas import SchemaFields, UnusableFlag, credential_fields, hints, resource_fields
from remuda.machines.options import Flag, FlagKind

Obj = dict[str, Any]
SHAPES = {each.name: each.shape for each in RANCHERS}


def fields(driver: str) -> dict[str, Obj]:
    return resource_fields(known_flags.flags_of(driver) or (), SHAPES[driver])


def one(flag: Flag, shape: SchemaFields | None = None) -> tuple[str, Obj]:
    ((name, field),) = resource_fields([flag], shape or SchemaFields()).items()
    return name, field


def values(**said: Any) -> Obj:
    return {"stringValue": "", "intValue": 0, "boolValue": False, "stringSliceValue": None, **said}


def test_a_text_keeps_its_default() -> None:
    name, field = one(Flag("amazonec2-vpc-id", FlagKind.STRING, "vpc-1", "Where"))
    assert name == "vpcId"
    assert field == {
        "type": "string",
        "default": values(stringValue="vpc-1"),
        "create": True,
        "update": True,
        "description": "Where",
    }


def test_a_number_is_a_text() -> None:
    assert one(Flag("amazonec2-root-size", FlagKind.INT, 16))[1]["type"] == "string"
    assert one(Flag("amazonec2-root-size", FlagKind.INT, 16))[1]["default"] == values(stringValue="16")
    assert one(Flag("amazonec2-retries", FlagKind.INT))[1]["default"] == values(stringValue="0")


def test_a_switch_is_off() -> None:
    field = one(Flag("azure-no-public-ip", FlagKind.BOOL))[1]
    assert (field["type"], field["default"]) == ("boolean", values())


def test_a_list_may_be_null() -> None:
    field = one(Flag("x-security-group", FlagKind.STRINGS, ("a", "b")))[1]
    assert (field["type"], field["nullable"]) == ("array[string]", True)
    assert field["default"] == values(stringSliceValue=["a", "b"])
    assert one(Flag("x-tag", FlagKind.STRINGS))[1]["default"] == values()


def test_a_flag_without_a_dash_makes_a_driver_unusable() -> None:
    with pytest.raises(UnusableFlag, match="url"):
        resource_fields(known_flags.flags_of("noop") or (), SchemaFields())


@pytest.mark.parametrize("name", ["ssh-key-contents", "ssh-key", "private-key-file"])
def test_private_keys_are_passwords_of_any_driver(name: str) -> None:
    assert one(Flag(f"x-{name}"))[1]["type"] == "password"


def test_files_are_called_by_what_they_hold() -> None:
    found = fields("amazonec2")
    assert "sshKeypath" not in found
    assert found["sshKeyContents"]["type"] == "password"
    assert found["sshKeyContents"]["description"] == "File contents for sshKeyContents"
    assert found["userdata"]["type"] == "string"
    assert fields("vmwarevsphere")["cloudConfig"]["description"] == "File contents for cloudConfig"
    assert hints(SHAPES["amazonec2"]) == {"sshKeyContents": {"type": "multiline"}, "userdata": {"type": "multiline"}}


def test_what_is_secret_is_a_password() -> None:
    assert fields("amazonec2")["secretKey"]["type"] == "password"
    assert fields("amazonec2")["accessKey"]["type"] == "string"
    assert fields("linode")["rootPass"]["type"] == "password"
    assert fields("vmwarevsphere")["password"]["type"] == "password"


def test_a_credential_has_its_fields_and_says_which_are_needed() -> None:
    found = credential_fields("azure", fields("azure"), SHAPES["azure"])
    assert list(found) == ["clientId", "clientSecret", "environment", "subscriptionId", "tenantId"]
    assert [name for name, field in found.items() if field.get("required")] == [
        "clientId",
        "clientSecret",
        "environment",
        "subscriptionId",
    ]
    assert found["clientSecret"]["type"] == "password"
    assert found["clientId"]["type"] == "string"


def test_a_credential_has_the_defaults_that_the_driver_s_annotations_say() -> None:
    found = credential_fields("vmwarevsphere", fields("vmwarevsphere"), SHAPES["vmwarevsphere"])
    assert found["vcenterPort"]["default"] == values(stringValue="443")


def test_a_credential_of_amazon_s_also_says_where_to_look() -> None:
    found = credential_fields("amazonec2", fields("amazonec2"), SHAPES["amazonec2"])
    assert list(found) == ["accessKey", "defaultRegion", "secretKey"]
    assert "required" not in found["defaultRegion"]


@pytest.mark.parametrize("driver", [each.name for each in RANCHERS if known_flags.flags_of(each.name)])
def test_what_annotations_name_exists(driver: str) -> None:
    """A field of a credential that is no flag could not be used by the driver."""
    shape, found = SHAPES[driver], fields(driver)
    assert {*shape.public, *shape.private, *shape.passwords, *shape.optional, *shape.aliases} <= found.keys()


def test_shapes_are_said_in_annotations_and_read_from_them() -> None:
    for each in RANCHERS:
        assert SchemaFields.of({"metadata": {"annotations": each.shape.annotations()}}) == each.shape
    assert SHAPES["vmwarevsphere"].annotations() == {
        "publicCredentialFields": "username,vcenter,vcenterPort",
        "privateCredentialFields": "password",
        "defaults": "vcenterPort:443",
        "nodedriver.cattle.io/file-to-field-aliases": "cloudConfig:cloud-config",
    }


def test_drivers_that_rancher_activates_have_fields_without_any_program() -> None:
    assert {each.name for each in RANCHERS if each.active} == {"amazonec2", "azure", "digitalocean", "vmwarevsphere"}
    assert all(known_flags.flags_of(each.name) for each in RANCHERS if each.active or each.url == "local://")


def test_everything_that_is_downloaded_has_a_checksum() -> None:
    assert all(len(each.checksum) == 64 for each in RANCHERS if each.url != "local://")
