"""Where the driver of a machine config connects, and the record of who said so."""

from __future__ import annotations

from typing import Any

from remuda.kube.authorization.users import User
from remuda.provisioning.references.driver_addresses import (
    DriverAddress,
    addresses_of,
    author_of,
    driver_of,
    record,
    recorded,
    written,
)
from remuda.provisioning.well_known import ADDRESS_AUTHORS

Obj = dict[str, Any]

ONE, TWO = User("u-one", groups=("g",)), User("u-two")
KIND = "OpenstackConfig"


def config(text: str = "", **fields: Any) -> Obj:
    annotations = {ADDRESS_AUTHORS: text} if text else {}
    return {"apiVersion": "v1", "kind": KIND, "metadata": {"name": "c", "annotations": annotations}, **fields}


def author(obj: Obj, field: str) -> str:
    (address,) = (each for each in addresses_of("openstack", obj) if each.field == field)
    entry = author_of(recorded(obj), address)
    return "" if entry is None else entry.author.name


def test_the_addresses_of_a_config_are_fields_of_its_driver() -> None:
    fields: Obj = {"authUrl": "https://a", "insecure": True, "common": {"url": "x"}, "endpointType": "publicURL"}
    assert driver_of(KIND) == "openstack"
    assert addresses_of("openstack", config(**fields)) == (
        DriverAddress("authUrl", "https://a"),
        DriverAddress("insecure", "true"),
    )
    assert addresses_of("openstack", None) == ()


def test_what_is_about_the_machine_itself_is_none() -> None:
    assert not addresses_of("amazonec2", {"httpEndpoint": "enabled"}) and addresses_of("other", {"httpEndpoint": "enabled"})


def test_a_write_is_of_the_addresses_that_it_adds_or_changes() -> None:
    old = config(authUrl="https://a", apiHost="h")
    assert written(KIND, config(authUrl="https://a", apiHost="h", flavorName="m2"), old) == []
    assert written(KIND, config(authUrl="https://b", apiHost="h"), old) == [DriverAddress("authUrl", "https://b")]
    assert written(KIND, config(apiHost="h"), old) == []
    assert [each.field for each in written(KIND, old, None)] == ["apiHost", "authUrl"]


def test_each_address_has_the_author_of_its_present_value() -> None:
    first = config(record(KIND, config(authUrl="a", apiHost="h"), None, ONE, ""), authUrl="a", apiHost="h")
    assert {author(first, "authUrl"), author(first, "apiHost")} == {"u-one"}
    second = config(record(KIND, config(authUrl="b", apiHost="h"), first, TWO, "2"), authUrl="b", apiHost="h")
    assert (author(second, "authUrl"), author(second, "apiHost")) == ("u-two", "u-one")
    # Taken out and written again, or put back to what it was: the last writer's.
    without = config(record(KIND, config(apiHost="h"), second, ONE, "3"), apiHost="h")
    again = config(record(KIND, config(authUrl="b", apiHost="h"), without, ONE, "4"), authUrl="b", apiHost="h")
    assert author(again, "authUrl") == "u-one"


def test_an_edit_elsewhere_records_nothing_and_what_a_client_sends_counts_for_nothing() -> None:
    before = config(authUrl="a")
    assert record(KIND, config(authUrl="a", size="l"), before, TWO, "2") == ""
    forged = config(record(KIND, config(authUrl="a"), None, ONE, ""), authUrl="a")
    assert record(KIND, forged, before, TWO, "2") == ""
    assert "u-two" in record(KIND, config(forged["metadata"]["annotations"][ADDRESS_AUTHORS], authUrl="b"), before, TWO, "2")


def test_what_is_accepted_is_the_accepting_user_s() -> None:
    before = config(record(KIND, config(authUrl="a"), None, ONE, ""), authUrl="a")
    after = config(record(KIND, before, before, TWO, "2", addresses_of("openstack", before)), authUrl="a")
    assert author(after, "authUrl") == "u-two"
    # Also of one from before there were records.
    old = config(authUrl="a")
    assert author(config(record(KIND, old, old, TWO, "2", addresses_of("openstack", old)), authUrl="a"), "authUrl") == "u-two"
