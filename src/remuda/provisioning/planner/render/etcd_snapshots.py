"""How etcd members keep snapshots, and where: the cluster's `etcd` as arguments (capr.md §4.6)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping

from ...plans.plan import File
from .context import Config, Ground, Host, Spec, mapping
from .plan_inputs import Source


def add(host: Host, config: Config, *, with_s3: bool = True) -> list[File]:
    """Tell `config` how to keep snapshots; the files are those it then speaks of. A restore leaves S3 out."""
    etcd = mapping(host.ground.spec.get("etcd"))
    if not host.machine.is_etcd or not etcd:
        return []
    if etcd.get("disableSnapshots"):
        config["etcd-disable-snapshots"] = True
    if _number(etcd.get("snapshotRetention")) > 0:
        config["etcd-snapshot-retention"] = _number(etcd.get("snapshotRetention"))
    if etcd.get("snapshotScheduleCron"):
        config["etcd-snapshot-schedule-cron"] = str(etcd["snapshotScheduleCron"])
    s3 = mapping(etcd.get("s3"))
    return _add_s3(host.ground, s3, config) if s3 and with_s3 else []


def _add_s3(ground: Ground, s3: Spec, config: Config) -> list[File]:
    credential = _credential(ground, str(s3.get("cloudCredentialName") or ""))
    for name, value in (
        ("bucket", s3.get("bucket") or credential.get("defaultBucket")),
        ("access-key", credential.get("accessKey")),
        ("secret-key", credential.get("secretKey")),
        ("region", s3.get("region") or credential.get("defaultRegion")),
        ("folder", s3.get("folder") or credential.get("defaultFolder")),
        ("endpoint", s3.get("endpoint") or credential.get("defaultEndpoint")),
    ):
        if value:
            config[f"etcd-s3-{name}"] = str(value)
    if s3.get("skipSSLVerify") or credential.get("defaultSkipSSLVerify") == "true":
        config["etcd-s3-skip-ssl-verify"] = True
    if _number(s3.get("retention")) > 0:
        config["etcd-s3-retention"] = _number(s3.get("retention"))
    config["etcd-s3"] = True
    return _add_authority(ground, str(s3.get("endpointCA") or credential.get("defaultEndpointCA") or ""), config)


def _add_authority(ground: Ground, authority: str, config: Config) -> list[File]:
    """The CA of the endpoint: a path that is on the host anyway, or certificates, plain or as base64, that become a file."""
    if not authority:
        return []
    if authority.endswith(".crt"):
        config["etcd-s3-endpoint-ca"] = ground.layout.path(authority)
        return []
    path = ground.config_file(f"s3-endpoint-ca-{hashlib.md5(authority.encode(), usedforsecurity=False).hexdigest()[:5]}.crt")
    config["etcd-s3-endpoint-ca"] = path
    return [File.of(path, _plain(authority))]


def _plain(authority: str) -> bytes:
    try:
        return base64.b64decode(authority, validate=True)
    except (binascii.Error, ValueError):
        return authority.encode()


def _credential(ground: Ground, reference: str) -> Mapping[str, str]:
    """A cloud credential's fields; its keys carry the driver's name before a dash."""
    if not reference:
        return {}
    namespace, colon, name = reference.partition(":")
    source: Source = ground.secret(name, namespace) if colon else ground.secret(namespace)
    return {key.rpartition("-")[2]: value.decode(errors="replace") for key, value in sorted(source.data.items())}


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
