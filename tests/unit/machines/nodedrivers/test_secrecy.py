"""Which fields of which driver are secret: the reviewed list, and what is close to it."""

from __future__ import annotations

import pytest

from remuda.machines.driver_registry import names
from remuda.machines.nodedrivers.builtin_drivers import builtin, python_driver
from remuda.machines.nodedrivers.driver_schemas import SchemaFields, resource_fields
from remuda.machines.nodedrivers.known_flags import flags_by_driver, flags_of
from remuda.machines.nodedrivers.machine_crds import definitions
from remuda.machines.nodedrivers.secrecy import is_secret, says_secret, variable_of

# Every field of every driver whose flags come with the server, that is sealed. A new flag is looked at before it is added here.
REVIEWED = {
    "amazonec2": {"accessKey", "secretKey", "sessionToken", "sshKeyContents"},
    "azure": {"clientSecret"},
    "container": set(),
    "digitalocean": {"accessToken", "sshKeyContents"},
    "exoscale": {"apiKey", "apiSecretKey", "sshKey"},
    "generic": {"sshKey"},
    "google": {"authEncodedJson"},
    "linode": {"rootPass", "token"},
    "local": set(),
    "openstack": {"applicationCredentialSecret", "password", "privateKeyFile"},
    "pod": set(),
    "rackspace": {"apiKey"},
    "softlayer": {"apiKey"},
    "vmwarevsphere": {"password", "sshPassword"},
}
# Fields with a word of a secret in their names that are none: names, fingerprints, switches, and the name of a key at Amazon.
CLOSE = {
    "amazonec2": {"httpTokens", "keypairName", "kmsKey"},
    "digitalocean": {"sshKeyFingerprint"},
    "openstack": {"keypairName"},
}


def fields_of(driver: str) -> dict[str, dict[str, object]]:
    ours, known = python_driver(driver), builtin().get(driver)
    flags = ours.flags if ours is not None else flags_of(driver) or ()
    return resource_fields(flags, known.shape if known is not None else SchemaFields())


def test_every_driver_whose_flags_are_known_was_reviewed() -> None:
    # Its only flag has no driver's name before it.
    assert {*flags_by_driver(), *names()} - {"noop"} == REVIEWED.keys()


@pytest.mark.parametrize("driver", sorted(REVIEWED))
def test_the_secret_fields_of_a_driver_are_the_reviewed_ones(driver: str) -> None:
    fields = fields_of(driver)
    found = {name for name in fields if is_secret(driver, name, fields)}
    assert found == REVIEWED[driver], "\n".join(f"{'secret' if name in found else 'plain '} {name}" for name in sorted(fields))
    # Also when its NodeDriver and its schema are gone.
    assert {name for name in fields if is_secret(driver, name)} == found
    close = {name for name in fields if any(word in name.lower() for word in ("key", "token", "secret", "passw"))} - found
    assert close == CLOSE.get(driver, set())


@pytest.mark.parametrize("driver", sorted(name for name, fields in REVIEWED.items() if fields))
def test_secret_fields_that_are_no_files_have_a_variable(driver: str) -> None:
    known = builtin().get(driver)
    aliases = known.shape.aliases if known is not None else {}
    for name in REVIEWED[driver] - aliases.keys():
        assert variable_of(driver, name), name


@pytest.mark.parametrize(
    ("field", "secret"),
    [
        ("password", True),
        ("privateKeyPassphrase", True),
        ("apiKey", True),
        ("clientSecret", True),
        ("token", True),
        ("rootPass", True),
        ("sshPublicKey", False),
        ("keyName", False),
        ("sshKeyPath", False),
        ("tokenTtl", False),
        ("secretId", False),
        ("monkey", False),
        ("passthrough", False),
        ("userdata", False),
    ],
)
def test_a_name_says_secret_by_whole_words(field: str, secret: bool) -> None:
    assert says_secret(field) is secret


def test_an_administrator_says_of_another_field_that_it_is_secret() -> None:
    fields = resource_fields(flags_of("pod") or (), SchemaFields(passwords=("userdata",)))
    assert is_secret("pod", "userdata", fields) and not is_secret("pod", "image", fields)


def test_what_is_no_text_is_never_sealed() -> None:
    assert not is_secret("paper", "token", {"token": {"type": "boolean"}})
    assert not is_secret("paper", "secret", {"secret": {"type": "array[string]"}})


def test_the_definitions_say_which_fields_are_sealed() -> None:
    for each in definitions("azure", {"resourceFields": fields_of("azure")}):
        schema = each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        for part in ("spec", "template", "spec"):
            schema = schema[part]["properties"] if "properties" in schema.get(part, {}) else schema
        assert "kept in a Secret" in schema["clientSecret"]["description"]
        assert "kept in a Secret" not in schema["location"]["description"]
