"""Security groups: found by name in the network, created if missing, opened, and removed after the last machine.

A group is shared by machines. So it has its owner's tag and no machine's, and is removed only if it has that tag and is unused;
EC2 refuses to remove one in use, which settles the race with a new machine. That machine in turn creates the group again if it
was removed before the launch (:mod:`.driver`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from remuda import __version__

from ...driver import DriverContext, Machine, Options
from ...errors import DriverError, Reason
from . import client
from .client import Ec2, Ec2Refused

DEFAULT_GROUP = "rancher-nodes"
_PAUSE, _TRIES = 3.0, 20
_GONE = ("InvalidGroup.NotFound", "InvalidGroupId.Malformed")


async def check_groups(ec2: Ec2, options: Options, vpc: str) -> None:
    """That those which we may not make are there. Raises DriverError."""
    if not options.on("security-group-readonly"):
        missing({"GroupId": ""}, options.texts("open-port"), nodes=False)
        return
    there = await _find(ec2, vpc, options.texts("security-group"))
    for name in options.texts("security-group"):
        if name not in there:
            raise _absent(name, vpc)


async def ensure_groups(ec2: Ec2, machine: Machine, vpc: str, around: DriverContext) -> list[str]:
    """Their identifiers, in the order of the names. Raises DriverError."""
    options = machine.options
    names = options.texts("security-group")
    there = await _find(ec2, vpc, names)
    found = []
    for name in names:
        group = there.get(name)
        if group is None:
            if options.on("security-group-readonly"):
                raise _absent(name, vpc)
            group = await _make(ec2, machine, vpc, name, around)
        if not options.on("security-group-readonly"):
            await _open(ec2, options, group)
        found.append(str(group["GroupId"]))
    return found


async def remove_groups(ec2: Ec2, machine: Machine) -> None:
    """Those of the machine's that are its owner's own and that nothing uses. By name: whether they were made is not kept."""
    vpc, names = str(machine.state.get("VpcId") or ""), machine.options.texts("security-group")
    if not vpc or not names:
        return
    filters = [{"Name": "group-name", "Values": list(names)}, {"Name": "vpc-id", "Values": [vpc]}]
    for group in await unused_groups(ec2, machine.owner, filters):
        await ec2.unless(
            ("DependencyViolation", "InvalidGroup.InUse", *_GONE),
            "delete_security_group",
            f"removing the security group {group['GroupName']}",
            GroupId=group["GroupId"],
        )


async def unused_groups(ec2: Ec2, owner: str, filters: Iterable[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """The owner's groups that pass the filters and that no network interface uses."""
    if not owner:
        return []
    doing, wanted = "looking for our security groups", [client.having(client.OWNER, [owner]), *filters]
    found = [group async for group in ec2.pages("describe_security_groups", doing, "SecurityGroups", Filters=wanted)]
    used = await _used(ec2, [str(group["GroupId"]) for group in found]) if found else set()
    return [group for group in found if group["GroupId"] not in used]


async def _used(ec2: Ec2, ids: list[str]) -> set[str]:
    filters = [{"Name": "group-id", "Values": ids}]
    doing = "looking for users of our security groups"
    interfaces = [one async for one in ec2.pages("describe_network_interfaces", doing, "NetworkInterfaces", Filters=filters)]
    return {str(group["GroupId"]) for one in interfaces for group in one.get("Groups") or ()}


async def _find(ec2: Ec2, vpc: str, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    if not names:
        return {}
    filters = [{"Name": "group-name", "Values": list(names)}, {"Name": "vpc-id", "Values": [vpc]}]
    doing = "looking for security groups"
    return {
        str(group["GroupName"]): group
        async for group in ec2.pages("describe_security_groups", doing, "SecurityGroups", Filters=filters)
    }


async def _make(ec2: Ec2, machine: Machine, vpc: str, name: str, around: DriverContext) -> dict[str, Any]:
    around.say(f"making the security group {name} in {vpc}")
    # By the first tag rancher-machine knows that it may add rules.
    bears = {DEFAULT_GROUP: __version__, **({client.OWNER: machine.owner} if machine.owner else {})}
    await ec2.unless(
        ("InvalidGroup.Duplicate",),
        "create_security_group",
        f"making the security group {name}",
        GroupName=name,
        Description="Rancher Nodes",
        VpcId=vpc,
        TagSpecifications=[client.specification("security-group", bears)],
    )
    for _ in range(_TRIES):
        if group := (await _find(ec2, vpc, (name,))).get(name):
            return group
        await around.clock.sleep(_PAUSE)
    raise DriverError(Reason.TIMED_OUT, f"the security group {name} was made and can't be seen {_PAUSE * _TRIES:.0f} s later")


async def _open(ec2: Ec2, options: Options, group: dict[str, Any]) -> None:
    name = str(group["GroupName"])
    for _ in range(_TRIES):
        nodes = name == DEFAULT_GROUP and DEFAULT_GROUP in client.read(group)
        lacking = missing(group, options.texts("open-port"), nodes=nodes)
        if not lacking:
            return
        try:
            await ec2(
                "authorize_security_group_ingress",
                f"opening ports of the security group {name}",
                GroupId=group["GroupId"],
                IpPermissions=lacking,
            )
            return
        except Ec2Refused as error:
            # Another client added one of them just now: then EC2 added none of ours.
            if error.code != "InvalidPermission.Duplicate":
                raise
        group = (await _find(ec2, str(group["VpcId"]), (name,))).get(name, group)
        if not missing(group, options.texts("open-port"), nodes=nodes):
            return


def _absent(name: str, vpc: str) -> DriverError:
    return DriverError(
        Reason.NOT_FOUND,
        f"there is no security group {name} in {vpc}: make it, or leave securityGroupReadonly unset and securityGroup at "
        f"{DEFAULT_GROUP}",
        field="securityGroup",
    )


# --- security group rules -------------------------------------------------------------------------------------------------
#
# Which ports the group `rancher-nodes` opens, and which of them a group lacks. Pure.

EVERYWHERE = "0.0.0.0/0"
# first port, last port, protocol, and whether from everywhere or only from the group's own machines
_NODES: tuple[tuple[int, int, str, bool], ...] = (
    (22, 22, "tcp", True),
    (2376, 2376, "tcp", True),
    (8443, 8443, "tcp", True),  # webhook
    (6443, 6443, "tcp", True),  # Kubernetes API
    (9345, 9345, "tcp", False),  # RKE2's supervisor
    (2379, 2380, "tcp", False),  # etcd
    (4789, 4789, "udp", False),  # VXLAN
    (5473, 5473, "tcp", False),  # Typha
    (8472, 8472, "udp", False),  # flannel
    (10250, 10252, "tcp", False),  # kubelet and others
    (10256, 10256, "tcp", False),  # kube-proxy
    (9796, 9796, "tcp", False),  # node exporter
    (30000, 32767, "tcp", True),  # node ports
    (30000, 32767, "udp", True),
    (80, 80, "tcp", True),
    (443, 443, "tcp", True),
    (179, 179, "tcp", False),  # Calico
)


def missing(group: Mapping[str, Any], open_ports: Iterable[str], *, nodes: bool) -> list[dict[str, Any]]:
    """Permissions to add to a group as EC2 describes it; `nodes` says that it shall have the rules above."""
    there = {(rule.get("FromPort"), rule.get("IpProtocol")) for rule in group.get("IpPermissions") or ()}
    wanted = [*(_NODES if nodes else ()), *(_opened(port) for port in open_ports)]
    found: list[dict[str, Any]] = []
    for first, last, protocol, public in wanted:
        if (first, protocol) in there:
            continue
        there.add((first, protocol))
        source: dict[str, Any] = (
            {"IpRanges": [{"CidrIp": EVERYWHERE}]} if public else {"UserIdGroupPairs": [{"GroupId": group["GroupId"]}]}
        )
        found.append({"IpProtocol": protocol, "FromPort": first, "ToPort": last, **source})
    return found


def _opened(said: str) -> tuple[int, int, str, bool]:
    port, _, protocol = said.partition("/")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise DriverError(Reason.INVALID, f"{said!r} is not a port: use 8080 or 8080/udp", field="openPort")
    return int(port), int(port), protocol or "tcp", True
