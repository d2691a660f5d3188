"""The request that launches an instance. Pure."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...driver import Machine, Options
from ...errors import DriverError, Reason
from . import tags
from .image_and_network import Image, Place

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
    tags.parsed(options.text("tags"))
    _metadata(options)
    userdata(options)


def request(machine: Machine, image: Image, place: Place, groups: Sequence[str], key: str, attempt: int = 1) -> dict[str, Any]:
    options = machine.options
    ours = {**tags.parsed(options.text("tags")), **tags.ours(machine)}
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
            tags.specification("instance", {**ours, "Name": machine.name}),
            tags.specification("volume", ours),
            tags.specification("network-interface", ours),
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
        found["TagSpecifications"].append(tags.specification("spot-instances-request", ours))
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


def _interface(options: Options, place: Place, groups: Sequence[str]) -> dict[str, Any]:
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
