"""The pure parts of the driver amazonec2: what EC2's errors mean, which ports are missing, which request is made."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from remuda.machines.driver import Machine, Options
from remuda.machines.drivers.amazonec2 import AmazonEC2
from remuda.machines.drivers.amazonec2.client import parsed, refusal
from remuda.machines.drivers.amazonec2.launch_request import Image, Placement, client_token, request, userdata, zone_of
from remuda.machines.drivers.amazonec2.security_groups import missing
from remuda.machines.errors import DriverError, Reason

IMAGE = Image("ami-1", "/dev/sda1", ())
PLACE = Placement("vpc-1", "subnet-1", "us-east-1a")


def options(**given: object) -> Options:
    return Options.read("amazonec2", AmazonEC2.flags, {f"amazonec2-{k.replace('_', '-')}": v for k, v in given.items()})


def machine(**given: object) -> Machine:
    return Machine("demo-1", options(**given), Path("/nowhere"), token="t-1", owner="o-1")


def asked(**given: object) -> dict[str, Any]:
    return request(machine(**given), IMAGE, PLACE, ["sg-1"], "key-1")


@pytest.mark.parametrize(
    ("code", "status", "reason", "field"),
    [
        ("AuthFailure", 401, Reason.AUTH_FAILED, "accessKey"),
        ("UnauthorizedOperation", 403, Reason.PERMISSION_DENIED, ""),
        ("VcpuLimitExceeded", 400, Reason.QUOTA_EXCEEDED, "instanceType"),
        ("AddressLimitExceeded", 400, Reason.QUOTA_EXCEEDED, ""),
        ("RequestLimitExceeded", 503, Reason.THROTTLED, ""),
        ("InsufficientInstanceCapacity", 500, Reason.OUT_OF_CAPACITY, "instanceType"),
        ("InvalidAMIID.NotFound", 400, Reason.NOT_FOUND, "ami"),
        ("InvalidAMIID.Malformed", 400, Reason.INVALID, "ami"),
        ("InvalidSubnet", 400, Reason.INVALID, "subnetId"),
        ("Whatever", 502, Reason.UNAVAILABLE, ""),
        ("Whatever", 400, Reason.FAILED, ""),
    ],
)
def test_an_error_of_ec2_has_a_reason_and_names_the_option(code: str, status: int, reason: Reason, field: str) -> None:
    error = refusal("launching an instance", code, "No.", status)
    assert (error.reason, error.field, error.code) == (reason, field, code)
    assert error.message.startswith(f"launching an instance failed: No ({code})")


def test_a_profile_that_is_not_there_is_blamed_though_the_code_says_nothing() -> None:
    error = refusal("launching", "InvalidParameterValue", "Value (x) for parameter iamInstanceProfile.name is invalid.")
    assert (error.reason, error.field) == (Reason.INVALID, "iamInstanceProfile")


def test_only_missing_ports_are_opened_and_each_once() -> None:
    there = [{"FromPort": 22, "ToPort": 22, "IpProtocol": "tcp"}, {"FromPort": 30000, "ToPort": 30100, "IpProtocol": "tcp"}]
    added = missing({"GroupId": "sg-1", "IpPermissions": there}, ["443", "53/udp", "53/udp"], nodes=True)
    found = [(rule["FromPort"], rule["IpProtocol"]) for rule in added]
    assert len(found) == len(set(found)) == 16
    assert (22, "tcp") not in found and (30000, "tcp") not in found and (53, "udp") in found
    assert missing({"GroupId": "sg-1"}, [], nodes=False) == []


@pytest.mark.parametrize("port", ["http", "0", "65536", "", "8080-8090"])
def test_what_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(DriverError) as caught:
        missing({"GroupId": "sg-1"}, [port], nodes=False)
    assert caught.value.field == "openPort"


def test_a_zone_is_a_letter_or_a_name() -> None:
    assert zone_of(options(zone="b", region="eu-west-1")) == "eu-west-1b"
    assert zone_of(options(zone="us-west-2-lax-1a")) == "us-west-2-lax-1a"


def test_tags_are_pairs() -> None:
    assert parsed("") == {}
    assert parsed("a,b,kubernetes.io/cluster/x,owned") == {"a": "b", "kubernetes.io/cluster/x": "owned"}


def test_no_tag_of_a_user_replaces_ours() -> None:
    (instance, *_) = asked(tags="remuda:token,other,Name,other")["TagSpecifications"]
    assert {tag["Key"]: tag["Value"] for tag in instance["Tags"]} == {
        "remuda:owner": "o-1",
        "remuda:machine": "demo-1",
        "remuda:token": "t-1",
        "Name": "demo-1",
    }


def test_a_client_token_is_the_machines_and_the_attempts_own_and_fits() -> None:
    tokens = {client_token(machine(), attempt) for attempt in (1, 1, 2)}
    assert len(tokens) == 2
    assert all(len(token) <= 64 and token.isascii() for token in tokens)


def test_what_was_not_asked_for_is_not_in_the_request() -> None:
    found = asked()
    assert not found.keys() & {"IamInstanceProfile", "MetadataOptions", "UserData", "InstanceMarketOptions"}
    assert asked(http_tokens="required")["MetadataOptions"] == {"HttpTokens": "required"}
    assert asked(http_protocol_ipv6="enabled")["MetadataOptions"] == {"HttpProtocolIpv6": "enabled"}


def test_a_machine_with_ipv6_only_gets_no_public_ipv4_address() -> None:
    (interface,) = asked(ipv6_address_only=True, ipv6_address_count=1, enable_primary_ipv6=True)["NetworkInterfaces"]
    assert interface["AssociatePublicIpAddress"] is False
    assert (interface["Ipv6AddressCount"], interface["PrimaryIpv6"]) == (1, True)


def test_user_data_that_can_not_be_made_small_enough_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "userdata"
    path.write_bytes(random.Random(1).randbytes(20_000))
    with pytest.raises(DriverError, match="EC2 takes 16384"):
        userdata(options(userdata=str(path)))
