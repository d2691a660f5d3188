"""Where an instance goes: its zone, its network, its subnet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...driver import Options
from ...errors import DriverError, Reason
from .client import Ec2

_NO_NETWORK = "the account has no default network (VPC) in {region}: name a vpcId or a subnetId"


@dataclass(frozen=True, slots=True)
class Place:
    vpc: str
    subnet: str
    zone: str


async def find_place(ec2: Ec2, options: Options) -> Place:
    """Raises DriverError."""
    named = options.text("subnet-id")
    if named:
        return await _named(ec2, options, named)
    vpc = options.text("vpc-id") or await _default_vpc(ec2, options)
    zone = zone_of(options)
    filters = [{"Name": "availability-zone", "Values": [zone]}, {"Name": "vpc-id", "Values": [vpc]}]
    found = [subnet async for subnet in ec2.pages("describe_subnets", "looking for a subnet", "Subnets", Filters=filters)]
    if not found:
        raise DriverError(Reason.NOT_FOUND, f"the network {vpc} has no subnet in the zone {zone}", field="zone")
    # Python's sort is stable: EC2's first, unless another is the zone's default.
    chosen = min(found, key=lambda subnet: not subnet.get("DefaultForAz"))
    return Place(vpc, str(chosen["SubnetId"]), zone)


def zone_of(options: Options) -> str:
    """`a` in us-east-1 is us-east-1a; a whole name stays."""
    zone = options.text("zone")
    return f"{options.text('region')}{zone}" if len(zone) == 1 else zone


async def _named(ec2: Ec2, options: Options, named: str) -> Place:
    filters = [{"Name": "subnet-id", "Values": [named]}]
    answer = await ec2("describe_subnets", f"looking for the subnet {named}", Filters=filters)
    found: list[dict[str, Any]] = answer.get("Subnets") or []
    if not found:
        raise DriverError(
            Reason.NOT_FOUND, f"there is no subnet {named} in the region {options.text('region')}", field="subnetId"
        )
    vpc, wanted = str(found[0]["VpcId"]), options.text("vpc-id")
    if wanted and wanted != vpc:
        raise DriverError(Reason.INVALID, f"the subnet {named} belongs to the network {vpc}, not to {wanted}", field="subnetId")
    return Place(vpc, named, str(found[0]["AvailabilityZone"]))


async def _default_vpc(ec2: Ec2, options: Options) -> str:
    filters = [{"Name": "is-default", "Values": ["true"]}]
    answer = await ec2("describe_vpcs", "looking for the default network", Filters=filters)
    found: list[dict[str, Any]] = answer.get("Vpcs") or []
    if not found:
        raise DriverError(Reason.NOT_FOUND, _NO_NETWORK.format(region=options.text("region")), field="vpcId")
    return str(found[0]["VpcId"])
