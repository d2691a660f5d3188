"""The fields of every known driver that say where it connects: a new one is to be looked at."""

from __future__ import annotations

import pytest

from remuda.machines.driver_registry import names
from remuda.machines.nodedrivers.known_flags import flags_by_driver
from remuda.provisioning.references.driver_addresses import addresses_of

from .test_secrecy import fields_of

# Reviewed. What is about the machine that is made (Amazon's httpEndpoint, Google's address) is not among them.
REVIEWED = {
    "amazonec2": {"endpoint", "insecureTransport"},
    "exoscale": {"url"},
    "generic": {"ipAddress"},
    "openstack": {"authUrl", "cacert", "insecure"},
    "softlayer": {"apiEndpoint"},
    "vmwarevsphere": {"vcenter"},
}
_VALUES: dict[str, object] = {"boolean": True, "array[string]": ["x"]}


# The only flag of `noop` has no driver's name before it.
@pytest.mark.parametrize("driver", sorted({*flags_by_driver(), *names()} - {"noop"}))
def test_the_addresses_of_a_driver_are_the_reviewed_ones(driver: str) -> None:
    fields = {name: _VALUES.get(str(field.get("type")), "x") for name, field in fields_of(driver).items()}
    found = {each.field for each in addresses_of(driver, fields)}
    assert found == REVIEWED.get(driver, set()), sorted(fields)
