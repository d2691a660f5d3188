"""The node drivers that come with the server: Rancher's (docs/reference/machines.md#built-in-drivers,
docs/reference/machines.md#annotations-of-a-driver) and those in Python that Rancher does not have.

Those of `local://` are part of rancher-machine, or of this program. The others are downloaded when an administrator activates
them; their checksums are here, so that nothing else is ever run under their names.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.api.management_cattle_io import API_VERSION
from remuda.kube.objects import annotations_of, dig, with_metadata

from ..driver import Driver
from ..driver_registry import find, names
from ..errors import DriverError
from .driver_schemas import SchemaFields

Obj = dict[str, Any]

LOCAL: Final = "local://"
_GITHUB: Final = "https://github.com"


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in driver. `active`: pools can use it on a new server."""

    name: str
    shape: SchemaFields = field(default_factory=SchemaFields)
    active: bool = False
    credentials: bool = False
    url: str = LOCAL
    checksum: str = ""
    hosts: tuple[str, ...] = ()
    description: str = ""


def _amazon() -> tuple[str, ...]:
    services = [
        f"{name}.%.{ending}" for name in ("ec2", "eks", "kms") for ending in ("amazonaws.com", "amazonaws.com.cn", "api.aws")
    ]
    return ("iam.amazonaws.com", "iam.us-gov.amazonaws.com", "iam.%.amazonaws.com.cn", "iam.global.api.aws", *services)


def _machine() -> str:
    return "arm64" if platform.machine() in ("aarch64", "arm64") else "amd64"


_LINODE: Final = {
    "amd64": "d9c3b8c389a022b0e5c5e8912496c18a673fa74bb52ec6ab51c0a93e0f4de06d",
    "arm64": "1a8336f66bffc2186f5fb77642f509b9370f177397ee71f1a8cb522e5979dbec",
}
_HARVESTER: Final = {
    "amd64": "159ec4d8c0d9dae8e322e7ddff64c0a5837c3dc209ae2e345128d4d5cb32279d",
    "arm64": "32a2d906bae047884c30dfd5370f83458edfc77e016b631dcdd46c9f98610951",
}

RANCHERS: Final[tuple[BuiltIn, ...]] = (
    BuiltIn(
        "amazonec2",
        SchemaFields(("accessKey",), ("secretKey",), aliases={"sshKeyContents": "sshKeypath", "userdata": "userdata"}),
        active=True,
        credentials=True,
        hosts=_amazon(),
    ),
    BuiltIn(
        "azure",
        SchemaFields(
            ("clientId", "subscriptionId", "tenantId", "environment"),
            ("clientSecret",),
            optional=("tenantId",),
            aliases={"customData": "customData"},
        ),
        active=True,
        credentials=True,
    ),
    BuiltIn(
        "digitalocean",
        SchemaFields((), ("accessToken",), aliases={"sshKeyContents": "sshKeyPath", "userdata": "userdata"}),
        active=True,
        hosts=("api.digitalocean.com",),
    ),
    BuiltIn(
        "vmwarevsphere",
        SchemaFields(
            ("username", "vcenter", "vcenterPort"),
            ("password",),
            defaults={"vcenterPort": "443"},
            aliases={"cloudConfig": "cloud-config"},
        ),
        active=True,
    ),
    BuiltIn(
        "exoscale",
        SchemaFields(("apiKey",), ("apiSecretKey",), aliases={"sshKey": "sshKey", "userdata": "userdata"}),
        hosts=("api.exoscale.ch",),
    ),
    BuiltIn(
        "google",
        SchemaFields((), ("authEncodedJson",), aliases={"authEncodedJson": "authEncodedJson", "userdata": "userdata"}),
        credentials=True,
    ),
    BuiltIn(
        "openstack",
        SchemaFields(
            (), ("password",), aliases={"cacert": "cacert", "privateKeyFile": "privateKeyFile", "userDataFile": "userDataFile"}
        ),
    ),
    BuiltIn("rackspace", SchemaFields((), ("apiKey",))),
    BuiltIn("softlayer", SchemaFields((), ("apiKey",))),
    BuiltIn(
        "harvester",
        SchemaFields(
            ("clusterType", "clusterId"), ("kubeconfigContent",), optional=("clusterId",), defaults={"clusterType": "imported"}
        ),
        url=f"{_GITHUB}/harvester/docker-machine-driver-harvester/releases/download/v1.0.9/"
        f"docker-machine-driver-harvester-{_machine()}.tar.gz",
        checksum=_HARVESTER[_machine()],
        hosts=("github.com",),
    ),
    BuiltIn(
        "linode",
        SchemaFields((), ("token",), ("rootPass",)),
        url=f"{_GITHUB}/linode/docker-machine-driver-linode/releases/download/v0.1.16/"
        f"docker-machine-driver-linode_linux-{_machine()}.zip",
        checksum=_LINODE[_machine()],
        hosts=("api.linode.com",),
    ),
    BuiltIn(
        "cloudca",
        url=f"{_GITHUB}/cloud-ca/docker-machine-driver-cloudca/files/2446837/docker-machine-driver-cloudca_v2.0.0_linux-amd64.zip",
        checksum="1757e2b807b0fea4a38eade4e961bcc609853986a44a99a4e86a37ccea1f7679",
        hosts=("objects-east.cloud.ca",),
    ),
    BuiltIn(
        "cloudscale",
        url=f"{_GITHUB}/cloudscale-ch/docker-machine-driver-cloudscale/releases/download/v1.2.0/"
        "docker-machine-driver-cloudscale_v1.2.0_linux_amd64.tar.gz",
        checksum="e33fbd6c2f87b1c470bcb653cc8aa50baf914a9d641a2f18f86a07c398cfb544",
        hosts=("objects.rma.cloudscale.ch",),
    ),
    BuiltIn(
        "oci",
        SchemaFields(("tenancyId", "userId", "fingerprint"), ("privateKeyContents",), ("privateKeyPassphrase",)),
        url=f"{_GITHUB}/rancher-plugins/rancher-machine-driver-oci/releases/download/v1.3.0/docker-machine-driver-oci-linux",
        checksum="0a1afa6a0af85ecf3d77cc554960e36e1be5fd12b22b0155717b9289669e4021",
        hosts=("*.oraclecloud.com",),
    ),
    BuiltIn(
        "otc",
        SchemaFields(("accessKey", "username"), ("secretKey", "password", "token"), aliases={"privateKeyFile": "privateKeyFile"}),
        url="https://otc-rancher.obs.eu-de.otc.t-systems.com/node/driver/0.3.3/docker-machine-driver-otc_0.3.3_linux_amd64.tar.gz",
        checksum="2151670a96e3ee71aedcfb5a1b73804a4772c3f9ca7f714f2a572d3868a648d1",
        hosts=("*.otc.t-systems.com",),
    ),
    BuiltIn(
        "packet",
        SchemaFields((), ("apiKey",), aliases={"userdata": "userdata"}),
        url=f"{_GITHUB}/equinix/docker-machine-driver-metal/releases/download/v0.6.0/docker-machine-driver-metal_linux-amd64.zip",
        checksum="fad5e551a35d2ef2db742b07ca6d61bb9c9b574d322d3000f0c557d5fb90a734",
        hosts=("api.packet.net", "api.equinix.com", "rancher-drivers.equinixmetal.net"),
    ),
    BuiltIn(
        "pnap",
        SchemaFields(("clientIdentifier",), ("clientSecret",)),
        url=f"{_GITHUB}/phoenixnap/docker-machine-driver-pnap/releases/download/v0.5.1/"
        "docker-machine-driver-pnap_0.5.1_linux_amd64.zip",
        checksum="5847599c24c137975fd190747a15ad4db9529ae35059b60e5f8bc9a470d55229",
        hosts=("api.securedservers.com", "api.phoenixnap.com", "auth.phoenixnap.com"),
    ),
    BuiltIn(
        "nutanix",
        SchemaFields(("endpoint", "username", "port"), ("password",)),
        url=f"{_GITHUB}/nutanix/docker-machine/releases/download/v3.8.0/docker-machine-driver-nutanix",
        checksum="ad18a0150f37e6cf0aef99a529f9541be72daa9e6dc3dad835d095d44e600f6a",
        hosts=("nutanix.github.io",),
    ),
    BuiltIn(
        "outscale",
        SchemaFields(("accessKey", "region"), ("secretKey",)),
        url=f"{_GITHUB}/outscale/docker-machine-driver-outscale/releases/download/v0.2.0/"
        "docker-machine-driver-outscale_0.2.0_linux_amd64.zip",
        checksum="bb539ed4e2b0f1a1083b29cbdbab59bde3efed0a3145fefc0b2f47026c48bfe0",
        hosts=("oos.eu-west-2.outscale.com",),
    ),
)


def builtin() -> dict[str, BuiltIn]:
    """All of them by name, those of other packages too; a driver that can't be loaded is left out until it can."""
    found = {each.name: each for each in RANCHERS}
    for name in names():
        if name in found:
            continue
        driver = python_driver(name)
        if driver is not None:
            found[name] = BuiltIn(name, shape_of(driver), active=driver.active, description=driver.title)
    return found


def python_driver(name: str) -> type[Driver] | None:
    """The driver in Python of this name, if it is here and can be loaded."""
    try:
        return find(name)
    except (DriverError, ImportError):
        return None


def shape_of(driver: type[Driver]) -> SchemaFields:
    return SchemaFields(
        driver.public_fields, driver.private_fields, driver.password_fields, driver.optional_fields, {}, driver.file_fields
    )


def node_driver(each: BuiltIn) -> Obj:
    """The object of a built-in driver on a new server."""
    metadata: Obj = {"name": each.name, "annotations": each.shape.annotations()}
    return {"apiVersion": API_VERSION, "kind": "NodeDriver", "metadata": metadata, "spec": {"active": each.active, **_spec(each)}}


def restored(existing: Obj, each: BuiltIn) -> Obj | None:
    """The driver with the built-in spec, except for whether it is active. None when nothing differs."""
    wanted = {**(existing.get("spec") or {}), **_spec(each)}
    annotations = {**annotations_of(existing), **each.shape.annotations()}
    if wanted == existing.get("spec") and annotations == annotations_of(existing):
        return None
    return with_metadata({**existing, "spec": wanted}, annotations=annotations)


def _spec(each: BuiltIn) -> Mapping[str, Any]:
    return {
        "addCloudCredential": each.credentials,
        "builtin": each.url == LOCAL,
        "checksum": each.checksum,
        "description": each.description,
        "displayName": each.name,
        "externalId": "",
        "uiUrl": "",
        "url": each.url,
        "whitelistDomains": list(each.hosts),
    }


def is_local(obj: Obj) -> bool:
    return str(dig(obj, "spec", "url") or "").startswith(LOCAL)
