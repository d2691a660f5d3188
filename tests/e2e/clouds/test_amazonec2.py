"""The driver amazonec2 against moto's server: what it makes, what it leaves, and what it says when it can't."""

from __future__ import annotations

import base64
import gzip
import itertools
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest

from remuda.machines.driver import Found, State
from remuda.machines.driver_registry import missing_extra
from remuda.machines.drivers.amazonec2 import AmazonEC2
from remuda.machines.errors import DriverError, Reason
from remuda.machines.options import Options
from remuda.machines.ssh import ensure_key
from tests.unit.machines.killing import Case, Places, create, remove

from ..conftest import SOAK
from .amazon import LARGE, REGION, UBUNTU, Amazon, asked, error
from .rig import OWNER, Fault, Held, Kill, Way, surroundings, survives

KEY: dict[str, bytes] = {}


@dataclass
class Bench:
    amazon: Amazon
    driver: AmazonEC2
    way: Way
    directory: Path
    said: list[str]
    made: list[Held] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def options(self, **given: object) -> Options:
        arguments = {"access-key": "AKIATEST", "secret-key": "test", "endpoint": self.way.url, **given}
        named = {f"amazonec2-{name.replace('_', '-')}": value for name, value in arguments.items()}
        return Options.read("amazonec2", self.driver.flags, named)

    def held(self, name: str = "", **given: object) -> Held:
        number = next(self.numbers)
        name = name or f"pool1-{number}"
        held = Held(name, self.options(**given), self.directory / f"{number}", self.way, f"{self.directory.name}-{number}")
        held.directory.mkdir(mode=0o700)
        # To make one takes longer than all the rest; the test of key pairs has a fresh one.
        if key := KEY.get("pem"):
            (held.directory / "id_rsa").write_bytes(key)
        self.made.append(held)
        return held

    async def create(self, **given: object) -> tuple[Held, dict[str, Any]]:
        held = self.held(**given)
        await held.create(self.driver)
        return held, self.amazon.instance()


@pytest.fixture(scope="module", autouse=True)
def key(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("key")
    ensure_key(directory)
    KEY["pem"] = (directory / "id_rsa").read_bytes()


@pytest.fixture
async def bench(moto_address: str, tmp_path: Path) -> AsyncIterator[Bench]:
    amazon = Amazon(moto_address)
    amazon.reset()
    around, said = surroundings()
    driver = AmazonEC2(around)
    async with amazon.way.open() as way:
        bench = Bench(amazon, driver, way, tmp_path, said)
        yield bench
        way.faults.clear()
        amazon.lag = 0
        way.arm(None)
        for held in bench.made:
            await held.remove(driver)
        await driver.aclose()
    # Whatever a test does: when its machines are gone, so is everything else of theirs.
    assert amazon.left() == {}


def tags_of(described: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in described.get("Tags", ())}


# What is made


@pytest.mark.story
async def test_without_options_it_is_the_newest_ubuntu_in_the_default_network_with_a_key_and_a_group_of_its_own(
    bench: Bench,
) -> None:
    held, instance = await bench.create()
    assert instance["ImageId"] == UBUNTU
    assert instance["InstanceType"] == "t2.micro"
    assert instance["Placement"]["AvailabilityZone"] == "us-east-1a"
    assert held.state["InstanceId"] == instance["InstanceId"]
    assert held.state["IPAddress"] == instance["PublicIpAddress"]
    assert (held.state["SSHUser"], held.state["SSHPort"]) == ("ubuntu", 22)
    assert await bench.driver.state(held.machine()[0]) is State.RUNNING
    assert tags_of(instance) == {
        "Name": held.name,
        "remuda:owner": OWNER,
        "remuda:machine": held.name,
        "remuda:token": held.token,
    }
    (volume,) = bench.amazon.truth.describe_volumes()["Volumes"]
    assert (volume["Size"], volume["VolumeType"], volume["Encrypted"]) == (16, "gp2", False)
    assert instance["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"] is True


async def test_options_reach_the_instance(bench: Bench, tmp_path: Path, moto_address: str) -> None:
    iam = boto3.client(
        "iam", region_name=REGION, endpoint_url=moto_address, aws_access_key_id="AKIATEST", aws_secret_access_key="test"
    )
    iam.create_instance_profile(InstanceProfileName="nodes")
    userdata = tmp_path / "userdata"
    userdata.write_text("#cloud-config\nhostname: one\n")
    held = bench.held(
        ami=LARGE,
        instance_type="m5.large",
        zone="b",
        root_size=40,
        volume_type="gp3",
        encrypt_ebs_volume=True,
        kms_key="arn:aws:kms:us-east-1:123456789012:key/0d5b7a0e-7c1f-4a3d-9b7e-4f0d8f0f1a2b",
        iam_instance_profile="nodes",
        tags="team,blue,kubernetes.io/cluster/c-m-1,owned",
        monitoring=True,
        use_ebs_optimized_instance=True,
        http_endpoint="enabled",
        http_tokens="required",
        userdata=str(userdata),
        ssh_user="ec2-user",
    )
    await held.create(bench.driver)
    instance = bench.amazon.instance()
    assert instance["InstanceType"] == "m5.large"
    assert instance["Placement"]["AvailabilityZone"] == "us-east-1b"
    assert instance["IamInstanceProfile"]["Arn"].endswith("/nodes")
    assert instance["Monitoring"]["State"] == "enabled"
    assert instance["EbsOptimized"] is True
    assert (instance["MetadataOptions"]["HttpTokens"], instance["MetadataOptions"]["HttpEndpoint"]) == ("required", "enabled")
    assert tags_of(instance).items() >= {"team": "blue", "kubernetes.io/cluster/c-m-1": "owned", "Name": held.name}.items()
    told = bench.amazon.truth.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
    assert base64.b64decode(told["UserData"]["Value"]) == userdata.read_bytes()
    (volume,) = bench.amazon.truth.describe_volumes()["Volumes"]
    assert (volume["Size"], volume["VolumeType"], volume["Encrypted"]) == (40, "gp3", True)
    assert volume["Attachments"][0]["Device"] == "/dev/xvda"
    assert tags_of(volume).items() >= {"team": "blue", "remuda:token": held.token}.items()
    assert held.state["SSHUser"] == "ec2-user"


async def test_a_spot_instance_is_asked_for_at_the_price_given(bench: Bench) -> None:
    _, instance = await bench.create(request_spot_instance=True, spot_price="0.07", block_duration_minutes=60)
    assert instance["InstanceLifecycle"] == "spot"
    launch = next(words for words in bench.amazon.requests if words.get("Action") == "RunInstances")
    assert launch["InstanceMarketOptions.SpotOptions.MaxPrice"] == "0.07"
    assert launch["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    assert launch["InstanceMarketOptions.SpotOptions.BlockDurationMinutes"] == "60"
    assert "spot-instances-request" in launch.values()


async def test_a_machine_with_private_addresses_only_is_known_by_one(bench: Bench) -> None:
    held, instance = await bench.create(private_address_only=True)
    assert "PublicIpAddress" not in instance
    assert held.state["IPAddress"] == held.state["PrivateIPAddress"] == instance["PrivateIpAddress"]


async def test_a_machine_may_have_a_public_address_and_be_known_by_its_private_one(bench: Bench) -> None:
    held, instance = await bench.create(use_private_address=True)
    assert instance["PublicIpAddress"]
    assert held.state["IPAddress"] == instance["PrivateIpAddress"]


async def test_a_named_subnet_says_the_network_and_the_zone(bench: Bench) -> None:
    truth = bench.amazon.truth
    vpc = truth.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    subnet = truth.create_subnet(VpcId=vpc, CidrBlock="10.7.1.0/24", AvailabilityZone="us-east-1c")["Subnet"]["SubnetId"]
    held, instance = await bench.create(subnet_id=subnet)
    assert (instance["SubnetId"], instance["VpcId"]) == (subnet, vpc)
    assert instance["Placement"]["AvailabilityZone"] == "us-east-1c"
    assert (held.state["VpcId"], held.state["SubnetId"]) == (vpc, subnet)
    other = bench.held(subnet_id=subnet, vpc_id="vpc-12345678")
    assert await refusal(bench, other) == (Reason.INVALID, "subnetId")


async def test_large_user_data_is_compressed(bench: Bench, tmp_path: Path) -> None:
    userdata = tmp_path / "userdata"
    userdata.write_text("#cloud-config\n" + "# the same again\n" * 2000)
    _, instance = await bench.create(userdata=str(userdata))
    told = bench.amazon.truth.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
    assert gzip.decompress(base64.b64decode(told["UserData"]["Value"])) == userdata.read_bytes()


# Key pairs


async def test_the_key_pair_is_the_machines_own(bench: Bench) -> None:
    held = bench.held()
    (held.directory / "id_rsa").unlink(missing_ok=True)
    await held.create(bench.driver)
    instance = bench.amazon.instance()
    (pair,) = bench.amazon.truth.describe_key_pairs(IncludePublicKey=True)["KeyPairs"]
    assert pair["KeyName"] == instance["KeyName"] == held.state["KeyName"]
    assert pair["KeyName"].startswith(f"{held.name}-")
    assert pair["PublicKey"].strip() == (held.directory / "id_rsa.pub").read_text().strip()
    assert (held.directory / "id_rsa").stat().st_mode & 0o777 == 0o600
    assert tags_of(pair)["remuda:token"] == held.token


async def test_a_key_pair_that_a_person_named_is_used_and_left(bench: Bench, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    public = ensure_key(theirs)
    bench.amazon.truth.import_key_pair(KeyName="theirs", PublicKeyMaterial=public.encode())
    try:
        held = bench.held(keypair_name="theirs", ssh_keypath=str(theirs / "id_rsa"))
        (held.directory / "id_rsa").unlink()
        await held.create(bench.driver)
        instance = bench.amazon.instance()
        assert instance["KeyName"] == "theirs"
        assert (held.directory / "id_rsa").read_bytes() == (theirs / "id_rsa").read_bytes()
        await held.remove(bench.driver)
        assert bench.amazon.left() == {"keys": ["theirs"]}
    finally:
        bench.amazon.truth.delete_key_pair(KeyName="theirs")


async def test_of_a_private_key_alone_the_public_one_is_derived(bench: Bench, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    public = ensure_key(theirs)
    (theirs / "id_rsa.pub").unlink()
    held = bench.held(ssh_keypath=str(theirs / "id_rsa"))
    (held.directory / "id_rsa").unlink()
    await held.create(bench.driver)
    assert (held.directory / "id_rsa.pub").read_text().strip() == public
    assert bench.amazon.keys() == [held.state["KeyName"]]


# Security groups


def ports(group: dict[str, Any]) -> set[tuple[int, int, str, bool]]:
    return {
        (rule["FromPort"], rule["ToPort"], rule["IpProtocol"], bool(rule.get("UserIdGroupPairs")))
        for rule in group["IpPermissions"]
    }


def group_named(bench: Bench, name: str) -> dict[str, Any]:
    filters = [{"Name": "group-name", "Values": [name]}]
    (group,) = bench.amazon.truth.describe_security_groups(Filters=filters)["SecurityGroups"]
    return dict(group)


async def test_the_default_group_opens_the_ports_that_kubernetes_needs(bench: Bench) -> None:
    await bench.create(open_port=["8080", "5353/udp"])
    group = group_named(bench, "rancher-nodes")
    assert len(group["IpPermissions"]) == 19
    assert ports(group) >= {
        (22, 22, "tcp", False),
        (6443, 6443, "tcp", False),
        (9345, 9345, "tcp", True),
        (2379, 2380, "tcp", True),
        (30000, 32767, "udp", False),
        (8080, 8080, "tcp", False),
        (5353, 5353, "udp", False),
    }
    assert tags_of(group).keys() == {"rancher-nodes", "remuda:owner"}


async def test_machines_share_the_group_and_the_last_takes_it_along(bench: Bench) -> None:
    one, two = bench.held(), bench.held()
    await one.create(bench.driver)
    await two.create(bench.driver)
    assert one.state["SecurityGroupIds"] == two.state["SecurityGroupIds"]
    await one.remove(bench.driver)
    assert bench.amazon.groups() == ["rancher-nodes"]
    await two.remove(bench.driver)
    assert bench.amazon.left() == {}


async def test_a_group_of_other_people_gets_the_ports_asked_for_and_stays(bench: Bench) -> None:
    theirs = bench.amazon.truth.create_security_group(GroupName="theirs", Description="theirs")["GroupId"]
    try:
        held, instance = await bench.create(security_group=["theirs"], open_port=["8080"])
        assert instance["NetworkInterfaces"][0]["Groups"][0]["GroupId"] == theirs
        assert ports(group_named(bench, "theirs")) == {(8080, 8080, "tcp", False)}
        await held.remove(bench.driver)
        assert bench.amazon.left() == {"groups": ["theirs"]}
    finally:
        bench.amazon.truth.delete_security_group(GroupId=theirs)


async def test_read_only_groups_are_not_touched_and_must_be_there(bench: Bench) -> None:
    theirs = bench.amazon.truth.create_security_group(GroupName="theirs", Description="theirs")["GroupId"]
    try:
        await bench.create(security_group=["theirs"], security_group_readonly=True, open_port=["8080"])
        assert ports(group_named(bench, "theirs")) == set()
        absent = bench.held(security_group=["theirs", "absent"], security_group_readonly=True)
        assert await refusal(bench, absent) == (Reason.NOT_FOUND, "securityGroup")
        assert "CreateSecurityGroup" not in bench.way.calls
        await bench.made[0].remove(bench.driver)
    finally:
        bench.amazon.truth.delete_security_group(GroupId=theirs)


async def test_rules_added_by_another_client_are_no_error(bench: Bench) -> None:
    duplicate = lambda: error("InvalidPermission.Duplicate", "the specified rule already exists")  # noqa: E731
    bench.way.faults.append(Fault("AuthorizeSecurityGroupIngress", duplicate))
    await bench.create()
    assert len(group_named(bench, "rancher-nodes")["IpPermissions"]) == 17


async def test_a_group_that_goes_between_the_look_and_the_launch_is_made_again(bench: Bench) -> None:
    bench.way.faults.append(Fault("RunInstances", lambda: error("InvalidGroup.NotFound", "no such group")))
    held, _ = await bench.create()
    assert bench.way.calls.count("RunInstances") == 2
    tokens = {words["ClientToken"] for words in bench.amazon.requests if words.get("Action") == "RunInstances"}
    assert len(tokens) == 1  # the first never reached EC2
    assert held.state["LaunchAttempt"] == 2


# What is said before anything is made


async def refusal(bench: Bench, held: Held) -> tuple[Reason, str]:
    with pytest.raises(DriverError) as caught:
        await bench.driver.precreate(held.machine()[0])
    return caught.value.reason, caught.value.field


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"ami": "ami-12345678"}, (Reason.NOT_FOUND, "ami")),
        ({"subnet_id": "subnet-12345678"}, (Reason.NOT_FOUND, "subnetId")),
        ({"vpc_id": "vpc-12345678"}, (Reason.NOT_FOUND, "zone")),
        ({"zone": "q"}, (Reason.NOT_FOUND, "zone")),
        ({"tags": "a,b,c"}, (Reason.INVALID, "tags")),
        ({"http_tokens": "sometimes"}, (Reason.INVALID, "httpTokens")),
        ({"http_endpoint": "on"}, (Reason.INVALID, "httpEndpoint")),
        ({"keypair_name": "theirs"}, (Reason.INVALID, "sshKeyContents")),
        ({"open_port": ["http"]}, (Reason.INVALID, "openPort")),
        ({"userdata": "/nowhere"}, (Reason.INVALID, "userdata")),
        ({"ipv6_address_only": True}, (Reason.INVALID, "ipv6AddressCount")),
        ({"endpoint": "", "insecure_transport": True}, (Reason.INVALID, "insecureTransport")),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_would_go_wrong_later_is_said_first(
    bench: Bench, given: dict[str, object], expected: tuple[Reason, str]
) -> None:
    assert await refusal(bench, bench.held(**given)) == expected
    bench.made.clear()
    assert bench.amazon.left() == {}


# What EC2 refuses


@pytest.mark.parametrize(
    ("call", "code", "expected"),
    [
        ("RunInstances", "VcpuLimitExceeded", (Reason.QUOTA_EXCEEDED, "instanceType")),
        ("RunInstances", "InstanceLimitExceeded", (Reason.QUOTA_EXCEEDED, "instanceType")),
        ("CreateSecurityGroup", "SecurityGroupLimitExceeded", (Reason.QUOTA_EXCEEDED, "")),
        ("RunInstances", "InsufficientInstanceCapacity", (Reason.OUT_OF_CAPACITY, "instanceType")),
        ("RunInstances", "SpotMaxPriceTooLow", (Reason.INVALID, "spotPrice")),
        ("RunInstances", "Unsupported", (Reason.INVALID, "instanceType")),
        ("DescribeVpcs", "AuthFailure", (Reason.AUTH_FAILED, "accessKey")),
        ("DescribeVpcs", "SignatureDoesNotMatch", (Reason.AUTH_FAILED, "secretKey")),
        ("ImportKeyPair", "UnauthorizedOperation", (Reason.PERMISSION_DENIED, "")),
        ("RunInstances", "SomethingNew", (Reason.FAILED, "")),
    ],
)
async def test_a_refusal_is_said_with_its_reason_and_nothing_is_left_after_it(
    bench: Bench, call: str, code: str, expected: tuple[Reason, str]
) -> None:
    bench.way.faults.append(Fault(call, lambda: error(code, "You can't have this."), times=-1))
    held = bench.held()
    with pytest.raises(DriverError) as caught:
        await held.create(bench.driver)
    assert (caught.value.reason, caught.value.field) == expected
    assert f"You can't have this ({code})" in caught.value.message
    assert bench.way.calls.count(call) == 1


async def test_an_instance_that_ec2_takes_back_at_once_is_said_with_ec2s_reason(bench: Bench) -> None:
    body = (
        "<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId>"
        "<instanceState><code>48</code><name>terminated</name></instanceState>"
        "<stateReason><code>Client.VolumeLimitExceeded</code><message>Volume limit exceeded</message></stateReason>"
        "</item></instancesSet></item></reservationSet></DescribeInstancesResponse>"
    )
    answer = error("")
    bench.way.faults.append(Fault("DescribeInstances", lambda: type(answer)(text=body, content_type="text/xml")))
    with pytest.raises(DriverError, match="Volume limit exceeded") as caught:
        await bench.held().create(bench.driver)
    assert caught.value.reason is Reason.QUOTA_EXCEEDED


# Calls that are not answered at once


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Unavailable", "InternalError"])
async def test_a_call_that_may_work_later_is_made_again_after_a_growing_pause(bench: Bench, code: str) -> None:
    for call in ("DescribeSubnets", "ImportKeyPair", "CreateSecurityGroup", "RunInstances", "DescribeInstances"):
        bench.way.faults.append(Fault(call, lambda: error(code, "slow down", 503), times=2))
    before = bench.driver.around.clock.monotonic()
    await bench.create()
    assert bench.way.calls.count("RunInstances") == 3
    assert bench.driver.around.clock.monotonic() - before >= 5 * (1 + 2)


async def test_a_call_is_given_up_after_as_many_retries_as_were_asked_for(bench: Bench) -> None:
    bench.way.faults.append(Fault("RunInstances", lambda: error("RequestLimitExceeded", "slow down", 503), times=-1))
    with pytest.raises(DriverError) as caught:
        await bench.held(retries=2).create(bench.driver)
    assert (caught.value.reason, caught.value.retryable) == (Reason.THROTTLED, True)
    assert bench.way.calls.count("RunInstances") == 3


@pytest.mark.parametrize("carried_out", [False, True])
async def test_of_calls_that_are_cut_nothing_is_made_twice(bench: Bench, carried_out: bool) -> None:
    for call in ("ImportKeyPair", "CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "RunInstances"):
        bench.way.faults.append(Fault(call, carried_out=carried_out, times=2))
    bench.amazon.lag = 3
    held, instance = await bench.create()
    assert held.state["InstanceId"] == instance["InstanceId"]
    assert bench.amazon.keys() == [held.state["KeyName"]]
    for call in ("TerminateInstances", "DeleteKeyPair", "DeleteSecurityGroup"):
        bench.way.faults.append(Fault(call, carried_out=carried_out))
    await held.remove(bench.driver)
    assert bench.amazon.left() == {}


async def test_an_error_of_the_server_may_hide_an_instance(bench: Bench) -> None:
    """It says that it failed, and launched one all the same."""
    bench.way.faults.append(Fault("RunInstances", lambda: error("InternalError", "oops", 500), carried_out=True))
    held, instance = await bench.create()
    assert held.state["InstanceId"] == instance["InstanceId"]


# Eventually consistent


async def test_an_instance_that_can_not_be_seen_at_first_is_waited_for(bench: Bench) -> None:
    bench.amazon.lag = 10
    held, instance = await bench.create()
    assert held.state["IPAddress"] == instance["PublicIpAddress"]


async def test_an_instance_whose_launch_was_not_answered_is_found_later(bench: Bench) -> None:
    """The process dies when EC2 has launched the instance and shows it to nobody yet."""
    bench.amazon.lag = 5
    # It gives up soon: of the time in which EC2 has to show what it launched, most is left for the looks.
    held = bench.held(retries=1)
    bench.way.faults.append(Fault("RunInstances", carried_out=True, times=-1))
    with pytest.raises(DriverError):
        await held.create(bench.driver)
    bench.way.faults.clear()
    assert "InstanceId" not in held.state
    await held.create(bench.driver)
    assert held.state["InstanceId"] == bench.amazon.instance()["InstanceId"]


async def test_an_instance_that_never_showed_is_removed_all_the_same(bench: Bench) -> None:
    bench.amazon.lag = 5
    held = bench.held(retries=1)
    bench.way.faults.append(Fault("RunInstances", carried_out=True, times=-1))
    with pytest.raises(DriverError):
        await held.create(bench.driver)
    bench.way.faults.clear()
    assert len(bench.amazon.instances()) == 1
    await held.remove(bench.driver)
    assert bench.amazon.left() == {}


async def test_an_instance_too_new_to_be_terminated_is_terminated(bench: Bench) -> None:
    held = bench.held()
    await held.create(bench.driver)
    bench.amazon._hidden = 4
    await held.remove(bench.driver)
    assert bench.amazon.left() == {}


async def test_a_launch_begun_with_other_parameters_is_gone_on_with(bench: Bench, tmp_path: Path) -> None:
    userdata = tmp_path / "userdata"
    userdata.write_text("#cloud-config\n")
    held = bench.held(userdata=str(userdata))
    bench.amazon.lag = 40
    bench.way.faults.append(Fault("RunInstances", carried_out=True, times=-1))
    with pytest.raises(DriverError):
        await held.create(bench.driver)
    bench.way.faults.clear()
    # So long ago that nobody waits before launching, and EC2 still hides it.
    held.state = {**held.state, "LaunchBegun": 1}
    userdata.write_text("#cloud-config\nhostname: other\n")
    bench.amazon._hidden = 3
    await held.create(bench.driver)
    assert held.state["InstanceId"] == bench.amazon.instance()["InstanceId"]


# Killed at every step


# Before a step nothing is otherwise than after the one before it, but for the call on its way: so that is for those with time.
SIDES = pytest.mark.parametrize("after", [True, False] if SOAK else [True], ids=lambda after: "after" if after else "before")


async def killed_creating(bench: Bench, step: int, after: bool) -> Held | None:
    """A machine whose creation was killed at this step; None when there are not so many."""
    held = bench.held()
    bench.way.arm(Kill(step, after))
    survived = await survives(held.create(bench.driver), bench.way)
    bench.way.arm(None)
    return None if survived else held


async def forget(bench: Bench, held: Held) -> None:
    await held.remove(bench.driver)
    bench.made.remove(held)


@SIDES
async def test_a_creation_that_is_killed_continues_and_makes_one_machine(bench: Bench, after: bool) -> None:
    bench.amazon.lag = 2
    step = 0
    while (held := await killed_creating(bench, step, after)) is not None:
        await held.create(bench.driver)
        assert held.state["InstanceId"] == bench.amazon.instance()["InstanceId"], step
        assert bench.amazon.keys() == [held.state["KeyName"]], step
        assert bench.amazon.groups() == ["rancher-nodes"], step
        await forget(bench, held)
        assert bench.amazon.left() == {}, step
        step += 1
    assert step >= 15


@SIDES
async def test_of_a_machine_whose_creation_was_killed_removal_leaves_nothing(bench: Bench, after: bool) -> None:
    bench.amazon.lag = 2
    step = 0
    while (held := await killed_creating(bench, step, after)) is not None:
        await forget(bench, held)
        assert bench.amazon.left() == {}, step
        step += 1
    assert step >= 15


@SIDES
async def test_a_removal_that_is_killed_continues_until_nothing_is_left(bench: Bench, after: bool) -> None:
    step, done = 0, False
    while not done:
        held = bench.held()
        await held.create(bench.driver)
        bench.way.arm(Kill(step, after))
        done = await survives(held.remove(bench.driver), bench.way)
        bench.way.arm(None)
        await forget(bench, held)
        assert bench.amazon.left() == {}, step
        step += 1
    assert step >= 8


@pytest.mark.story
async def test_the_whole_program_makes_and_removes_it(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho install\n")

    async def existing() -> list[str]:
        return [tags_of(instance)["Name"] for instance in bench.amazon.instances()]

    case = Case(AmazonEC2, bench.options, existing, str(script), bench.driver.around)
    async with Places() as places:
        place = await places.new()
        await create(place, case)
        instance = bench.amazon.instance()
        told = bench.amazon.truth.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
        assert b"sh /usr/local/custom_script/install.sh" in base64.b64decode(told["UserData"]["Value"])
        kept = await place.files()
        assert kept.keys() >= {"config.json", "id_rsa", "id_rsa.pub"}
        assert b"AKIATEST" not in b"".join(kept.values())
        await remove(place, case)
    assert bench.amazon.left() == {}


# Removal, orphans, credentials


async def test_what_is_gone_already_is_no_error(bench: Bench) -> None:
    held, instance = await bench.create()
    bench.amazon.truth.terminate_instances(InstanceIds=[instance["InstanceId"]])
    bench.amazon.truth.delete_key_pair(KeyName=held.state["KeyName"])
    assert await bench.driver.state(held.machine()[0]) is State.NOT_FOUND
    await held.remove(bench.driver)
    await held.remove(bench.driver)


async def test_of_a_machine_that_was_never_begun_there_is_nothing_to_remove(bench: Bench) -> None:
    await bench.held().remove(bench.driver)
    assert not [call for call in bench.way.calls if not call.startswith("Describe")]


async def test_what_bears_the_owners_tag_is_found(bench: Bench) -> None:
    held, instance = await bench.create()
    other = bench.held()
    other.owner = "somebody-else"
    await other.create(bench.driver)
    found = await bench.driver.owned(bench.options(), OWNER)
    assert [(one.what, one.id, one.machine, one.token) for one in found] == [
        ("instance", instance["InstanceId"], held.name, held.token),
        ("key pair", held.state["KeyName"], held.name, held.token),
    ]
    assert found[0].address == instance["PublicIpAddress"]
    await other.remove(bench.driver)
    bench.amazon.truth.terminate_instances(InstanceIds=[instance["InstanceId"]])
    found = await bench.driver.owned(bench.options(), OWNER)
    # A key pair whose machine is gone, and a group that nobody uses.
    assert [one.what for one in found] == ["key pair", "security group"]
    assert found[1] == Found(held.state["SecurityGroupIds"][0], "", what="security group")
    await held.remove(bench.driver)
    assert await bench.driver.owned(bench.options(), OWNER) == []


async def test_a_machine_of_rancher_machine_is_removed_with_its_key(bench: Bench, tmp_path: Path) -> None:
    public = ensure_key(tmp_path)
    truth = bench.amazon.truth
    truth.import_key_pair(KeyName="theirs-AbCdE", PublicKeyMaterial=public.encode())
    interface = {"DeviceIndex": 0, "DeleteOnTermination": True}
    launched = truth.run_instances(
        ImageId=UBUNTU, MinCount=1, MaxCount=1, KeyName="theirs-AbCdE", InstanceType="t2.micro", NetworkInterfaces=[interface]
    )
    state = {
        "InstanceId": launched["Instances"][0]["InstanceId"],
        "KeyName": "theirs-AbCdE",
        "ExistingKey": False,
        "Region": REGION,
        "Endpoint": bench.way.url,
        "DisableSSL": False,
        "RetryCount": 5,
        "AccessKey": "AKIATEST",
        "SecretKey": "test",
        "RequestSpotInstance": False,
    }
    restored = bench.driver.restored(state)
    options = Options.read("amazonec2", bench.driver.flags, {f"amazonec2-{name}": value for name, value in restored.items()})
    assert options.text("access-key") == "AKIATEST"
    await Held("theirs", options, tmp_path / "theirs", bench.way, "", "", state).remove(bench.driver)
    assert bench.amazon.left() == {}


@pytest.mark.story
async def test_no_secret_is_kept_or_said(bench: Bench) -> None:
    held = bench.held(secret_key="hush-hush-hush")
    await held.create(bench.driver)
    assert "hush" not in str(held.keeps) + str(bench.said) + str(held.options.kept())


async def test_credentials_that_ec2_does_not_know_are_said_at_once(bench: Bench, moto_address: str) -> None:
    await bench.driver.verify(bench.options())
    async with bench.way._session.post(f"{moto_address}/moto-api/reset-auth", data="0") as answer:
        assert answer.status == 200
    try:
        with pytest.raises(DriverError) as caught:
            await bench.driver.verify(bench.options(access_key="AKIAWRONG", secret_key="hush-hush-hush"))
    finally:
        async with bench.way._session.post(f"{moto_address}/moto-api/reset-auth", data="inf") as answer:
            assert answer.status == 200
    assert (caught.value.reason, caught.value.field) == (Reason.AUTH_FAILED, "accessKey")
    assert "hush" not in str(caught.value)
    assert bench.way.calls == ["DescribeAvailabilityZones"] * 2


async def test_credentials_that_may_do_nothing_yet_are_known_all_the_same(bench: Bench) -> None:
    bench.way.faults.append(Fault("DescribeAvailabilityZones", lambda: error("UnauthorizedOperation", "no", 403)))
    await bench.driver.verify(bench.options())


async def test_a_provider_that_is_down_is_not_a_wrong_credential(bench: Bench) -> None:
    with pytest.raises(DriverError) as caught:
        await bench.driver.verify(bench.options(endpoint="http://127.0.0.1:9"))
    assert caught.value.reason is Reason.UNAVAILABLE


async def test_without_boto3_it_says_what_to_install(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    with pytest.raises(ImportError) as caught:
        await bench.driver.verify(bench.options())
    assert "pip install 'remuda[amazonec2]'" in missing_extra(AmazonEC2, caught.value).message


def test_a_request_can_be_read() -> None:
    assert asked(b"Action=RunInstances&ClientToken=a%2Fb") == {"Action": "RunInstances", "ClientToken": "a/b"}
