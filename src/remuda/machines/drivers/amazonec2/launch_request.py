"""The request that launches an instance. Pure."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...driver import Machine, Options
from ...errors import DriverError, Reason
from . import client
from .client import Ec2

_USERDATA_LIMIT = 16 * 1024
_CHOICES = {
    "http-endpoint": ("HttpEndpoint", ("enabled", "disabled")),
    "http-tokens": ("HttpTokens", ("optional", "required")),
    "http-protocol-ipv6": ("HttpProtocolIpv6", ("enabled", "disabled")),
}


def client_token(machine: Machine, attempt: int) -> str:
    """EC2 gives the same instance for the same token. A new attempt begins after EC2 said that there is no instance."""
    return hashlib.sha256(f"{machine.token}/{attempt}".encode()).hexdigest()


def check(options: Options) -> None:
    """Check the options without a request to EC2. Raises DriverError."""
    if options.text("keypair-name") and not options.text("ssh-keypath"):
        raise DriverError(Reason.INVALID, "keypairName needs its private key too, as sshKeyContents", field="sshKeyContents")
    if options.on("ipv6-address-only") and options.number("ipv6-address-count") < 1:
        raise DriverError(Reason.INVALID, "ipv6AddressOnly needs an ipv6AddressCount of 1 or more", field="ipv6AddressCount")
    client.parsed(options.text("tags"))
    _metadata(options)
    userdata(options)


def request(
    machine: Machine, image: Image, place: Placement, groups: Sequence[str], key: str, attempt: int = 1
) -> dict[str, Any]:
    options = machine.options
    ours = {**client.parsed(options.text("tags")), **client.ours(machine)}
    found: dict[str, Any] = {
        "ClientToken": client_token(machine, attempt),
        "ImageId": image.id,
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": options.text("instance-type"),
        "KeyName": key,
        "Placement": {"AvailabilityZone": place.zone},
        "NetworkInterfaces": [_interface(options, place, groups)],
        "Monitoring": {"Enabled": options.on("monitoring")},
        "EbsOptimized": options.on("use-ebs-optimized-instance"),
        "BlockDeviceMappings": list(image.volumes),
        "TagSpecifications": [
            client.specification("instance", {**ours, "Name": machine.name}),
            client.specification("volume", ours),
            client.specification("network-interface", ours),
        ],
    }
    if options.text("iam-instance-profile"):
        found["IamInstanceProfile"] = {"Name": options.text("iam-instance-profile")}
    if metadata := _metadata(options):
        found["MetadataOptions"] = metadata
    if content := userdata(options):
        found["UserData"] = content
    if options.on("request-spot-instance"):
        found["InstanceMarketOptions"] = _market(options)
        found["TagSpecifications"].append(client.specification("spot-instances-request", ours))
    return found


def userdata(options: Options) -> bytes:
    """Compressed if it must be; cloud-init takes either. Raises DriverError."""
    named = options.text("userdata")
    if not named:
        return b""
    try:
        content = Path(named).read_bytes()
    except OSError as error:
        raise DriverError(Reason.INVALID, f"the user data in {named} can't be read: {error.strerror}", field="userdata") from None
    if len(content) > _USERDATA_LIMIT:
        # The same bytes every time: EC2 compares requests with the same token.
        content = gzip.compress(content, mtime=0)
    if len(content) > _USERDATA_LIMIT:
        raise DriverError(
            Reason.INVALID, f"the user data has {len(content)} bytes, compressed; EC2 takes {_USERDATA_LIMIT}", field="userdata"
        )
    return content


def _interface(options: Options, place: Placement, groups: Sequence[str]) -> dict[str, Any]:
    private = options.on("private-address-only") or options.on("ipv6-address-only")
    found: dict[str, Any] = {
        "DeviceIndex": 0,
        "SubnetId": place.subnet,
        "Groups": list(groups),
        "AssociatePublicIpAddress": not private,
        "DeleteOnTermination": True,
    }
    if options.number("ipv6-address-count"):
        found["Ipv6AddressCount"] = options.number("ipv6-address-count")
    if options.on("enable-primary-ipv6"):
        found["PrimaryIpv6"] = True
    return found


def _metadata(options: Options) -> dict[str, str]:
    found = {}
    for name, (parameter, choices) in _CHOICES.items():
        said = options.text(name)
        if said and said not in choices:
            field = options.field(name)
            raise DriverError(Reason.INVALID, f"{field} must be {' or '.join(choices)}, not {said!r}", field=field)
        if said and (name != "http-protocol-ipv6" or said == "enabled"):
            found[parameter] = said
    return found


def _market(options: Options) -> dict[str, Any]:
    spot: dict[str, Any] = {"SpotInstanceType": "one-time", "MaxPrice": options.text("spot-price")}
    if options.number("block-duration-minutes"):
        spot["BlockDurationMinutes"] = options.number("block-duration-minutes")
    return {"MarketType": "spot", "SpotOptions": spot}


# --- image and network -----------------------------------------------------------------------------------------------------
#
# The image that an instance starts from, and the volumes that result from it.
#
# Without a named image it is Canonical's newest Ubuntu 22.04 in the region. rancher-machine has a list of these from the time
# when it was built; an image of that list may be gone.

# Canonical's account differs in the partitions that are not joined to the rest.
_CANONICAL = {"cn-": "837727238323", "us-gov-": "513442679011"}
_CANONICAL_ELSEWHERE = "099720109477"
_UBUNTU = "ubuntu/images/hvm-ssd*/ubuntu-jammy-22.04-amd64-server-*"
# The parts of an image's mapping that may not be repeated when an instance is launched.
_NOT_OURS = ("Encrypted", "KmsKeyId", "OutpostArn", "AvailabilityZone", "AvailabilityZoneId")


@dataclass(frozen=True, slots=True)
class Image:
    id: str
    root: str
    volumes: tuple[dict[str, Any], ...]


async def find_image(ec2: Ec2, options: Options, chosen: str = "") -> Image:
    """`chosen` is the image of an earlier try: it stays. Raises DriverError."""
    named = options.text("ami") or chosen
    region = options.text("region")
    if named:
        gone = ("InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidAMIID.Malformed")
        answer = await ec2.unless(gone, "describe_images", f"looking for the image {named}", ImageIds=[named])
    else:
        answer = await ec2(
            "describe_images",
            "looking for Ubuntu's image",
            Owners=[next((owner for start, owner in _CANONICAL.items() if region.startswith(start)), _CANONICAL_ELSEWHERE)],
            Filters=[{"Name": "name", "Values": [_UBUNTU]}, {"Name": "state", "Values": ["available"]}],
        )
    found: list[dict[str, Any]] = (answer or {}).get("Images") or []
    if not found:
        text = f"there is no image {named} in the region {region}" if named else f"name an ami: {region} has no Ubuntu 22.04"
        raise DriverError(Reason.NOT_FOUND, text, field="ami")
    image = max(found, key=lambda image: str(image.get("CreationDate", "")))
    root = options.text("device-name") or str(image.get("RootDeviceName") or "/dev/sda1")
    return Image(str(image["ImageId"]), root, tuple(_volumes(image, root, options)))


def _volumes(image: dict[str, Any], root: str, options: Options) -> list[dict[str, Any]]:
    """Every volume is deleted with the instance, regardless of the image's setting: nothing else would find it again."""
    found = []
    for mapping in image.get("BlockDeviceMappings") or ():
        if "Ebs" not in mapping:
            continue
        ebs = {key: value for key, value in mapping["Ebs"].items() if key not in _NOT_OURS}
        if mapping["DeviceName"] == root:
            ebs |= {"VolumeSize": options.number("root-size"), "VolumeType": options.text("volume-type")}
            # These belong to the image's own type.
            ebs = {key: value for key, value in ebs.items() if key not in ("Iops", "Throughput")}
        ebs["DeleteOnTermination"] = True
        if options.on("encrypt-ebs-volume") or options.text("kms-key"):
            ebs["Encrypted"] = True
        if options.text("kms-key"):
            ebs["KmsKeyId"] = options.text("kms-key")
        found.append({"DeviceName": mapping["DeviceName"], "Ebs": ebs})
    return found


# --- network --------------------------------------------------------------------------------------------------------------
#
# The place of an instance: its zone, its network, its subnet.

_NO_NETWORK = "the account has no default network (VPC) in {region}: name a vpcId or a subnetId"


@dataclass(frozen=True, slots=True)
class Placement:
    vpc: str
    subnet: str
    zone: str


async def find_place(ec2: Ec2, options: Options) -> Placement:
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
    return Placement(vpc, str(chosen["SubnetId"]), zone)


def zone_of(options: Options) -> str:
    """`a` in us-east-1 is us-east-1a; a whole name stays."""
    zone = options.text("zone")
    return f"{options.text('region')}{zone}" if len(zone) == 1 else zone


async def _named(ec2: Ec2, options: Options, named: str) -> Placement:
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
    return Placement(vpc, named, str(found[0]["AvailabilityZone"]))


async def _default_vpc(ec2: Ec2, options: Options) -> str:
    filters = [{"Name": "is-default", "Values": ["true"]}]
    answer = await ec2("describe_vpcs", "looking for the default network", Filters=filters)
    found: list[dict[str, Any]] = answer.get("Vpcs") or []
    if not found:
        raise DriverError(Reason.NOT_FOUND, _NO_NETWORK.format(region=options.text("region")), field="vpcId")
    return str(found[0]["VpcId"])
