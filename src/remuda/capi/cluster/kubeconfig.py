"""The kubeconfig secret of a Cluster that has no control plane object to make it: an admin, signed by `<cluster>-ca`.

An existing secret is never touched: a user may have put it there.
"""

from __future__ import annotations

import base64
import datetime
from typing import Any

from remuda.api.cluster_x_k8s_io import API_VERSION
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Entropy
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, uid_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import Informer, Result, logger

from .. import contracts
from ..controller_context import Core
from ..phases import Stuck
from ..well_known import CLUSTER_NAME, SECRET_TYPE, ca_secret, kubeconfig_secret
from ..workload_clusters import KUBECONFIG_KEY, data_of
from .scope import CONTROLLER, ClusterScope

log = logger(__name__)

Obj = dict[str, Any]

RECHECK_SECONDS = 30.0
_YEAR = 365 * 86_400
_USER, _GROUP = "kubernetes-admin", "system:masters"
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class BadAuthority(ValueError):
    """A CA secret that can't sign; the text says why."""


async def kubeconfig(core: Core, scope: ClusterScope, secrets: Informer, entropy: Entropy) -> Result | None:
    endpoint = contracts.endpoint(scope.cluster)
    if not endpoint.valid or scope.control_plane.ref:
        return None
    namespace, name = scope.key
    if secrets.get(namespace, kubeconfig_secret(name)) is not None:
        return None
    # A secret without the label is not in the cache, but may exist.
    if await _get(core, kubeconfig_secret(name), namespace) is not None:
        return None
    authority = await _get(core, ca_secret(name), namespace)
    if authority is None:
        return Result(RECHECK_SECONDS, (_wait(scope, Code.REFERENCE, "it does not exist"),))
    try:
        made = kubeconfig_for(name, endpoint, authority, core.now(), entropy)
    except BadAuthority as error:
        log.warning("the secret %s can't be used: %s", ca_secret(name), error)
        raise Stuck(_wait(scope, Code.MALFORMED, str(error))) from None
    try:
        written = await core.client.create(SECRETS, secret_of(scope.cluster, made), namespace)
    except ApiError as error:
        if not error.is_already_exists:
            raise
        return None
    core.wrote(CONTROLLER, scope.key, secrets, written)
    return None


def _wait(scope: ClusterScope, code: Code, evidence: str) -> Wait:
    namespace, name = scope.key
    return Wait(code, scope.ref, Actor.USER, Ref("", "Secret", namespace, ca_secret(name)), evidence)


async def _get(core: Core, name: str, namespace: str) -> Obj | None:
    try:
        return await core.client.get(SECRETS, name, namespace)
    except ApiError as error:
        if error.is_not_found:
            return None
        raise


def secret_of(cluster: Obj, content: bytes) -> Obj:
    namespace, name = Key.of(cluster)
    owner = {"apiVersion": API_VERSION, "kind": "Cluster", "name": name, "uid": uid_of(cluster)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": kubeconfig_secret(name),
            "namespace": namespace,
            "labels": {CLUSTER_NAME: name},
            "ownerReferences": [owner],
        },
        "type": SECRET_TYPE,
        "data": {KUBECONFIG_KEY: base64.b64encode(content).decode()},
    }


def kubeconfig_for(cluster: str, endpoint: contracts.ControlPlaneEndpoint, authority: Obj, now: float, entropy: Entropy) -> bytes:
    """An admin's kubeconfig, all inline. Raises BadAuthority."""
    ca, certificate, key = _signed(authority, now, entropy)
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    user = f"{cluster}-admin"
    context = f"{user}@{cluster}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": cluster, "cluster": {"certificate-authority-data": _text(ca), "server": f"https://{host}:{endpoint.port}"}}
        ],
        "contexts": [{"name": context, "context": {"cluster": cluster, "user": user}}],
        "current-context": context,
        "users": [{"name": user, "user": {"client-certificate-data": _text(certificate), "client-key-data": _text(key)}}],
    }
    return yamlio.dumps(config).encode()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _signed(authority: Obj, now: float, entropy: Entropy) -> tuple[bytes, bytes, bytes]:
    """The CA's certificate, and a new client certificate with its key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    try:
        ca = x509.load_pem_x509_certificate(data_of(authority, "tls.crt") or b"")
    except ValueError:
        raise BadAuthority("tls.crt is no certificate") from None
    try:
        signer = serialization.load_pem_private_key(data_of(authority, "tls.key") or b"", password=None)
    except (ValueError, TypeError):
        raise BadAuthority("tls.key is no private key") from None
    if not isinstance(signer, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise BadAuthority("tls.key is neither an RSA nor an ECDSA key")
    if signer.public_key() != ca.public_key():
        raise BadAuthority("tls.crt and tls.key do not belong together")
    key = ec.derive_private_key(1 + int.from_bytes(entropy.token_bytes(48)) % (_P256_ORDER - 1), ec.SECP256R1())
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, _GROUP), x509.NameAttribute(NameOID.COMMON_NAME, _USER)]
    usage = x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(entropy.token_bytes(20)) >> 1 or 1)
        .not_valid_before(ca.not_valid_before_utc)
        .not_valid_after(datetime.datetime.fromtimestamp(int(now) + _YEAR, datetime.UTC))
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    return ca.public_bytes(pem), certificate.public_bytes(pem), secret
