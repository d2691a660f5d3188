"""The cluster's authorities and what they sign: made once, used when placed beforehand, the same for all servers."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from remuda.apiserver.keys.token_sealing import WrongToken
from remuda.kube import certificates as signing
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Entropy, VirtualClock
from remuda.lab.distro.config import settings
from remuda.lab.distro.config.settings import Paths
from remuda.lab.distro.pki import authorities, certificates
from remuda.lab.distro.pki import authorities as bootstrap_data
from remuda.lab.distro.pki.authorities import ENCRYPTION, SERVER_CA, Authorities
from remuda.lab.distro.pki.certificates import Leaf

CLOCK, ENTROPY = VirtualClock(), Entropy(7)


def paths(root: Path) -> Paths:
    return Paths(root / "data", root)


def told(root: Path) -> settings.Settings:
    return settings.of({"node-name": "n", "node-ip": "127.5.5.5", "tls-san": ["outside.example"]}, root)


def test_they_are_made_once(tmp_path: Path) -> None:
    first = authorities.ensure(paths(tmp_path), CLOCK, ENTROPY)
    again = authorities.ensure(paths(tmp_path), CLOCK, ENTROPY)
    assert first.files == again.files
    found = authorities.read(paths(tmp_path))
    assert found is not None and found.differences(first) == []
    assert (paths(tmp_path).tls / "server-ca.key").stat().st_mode & 0o077 == 0


def _chain() -> tuple[bytes, bytes]:
    """An intermediate CA of RSA and its root, as a user's own authority makes them: the bundle, and the intermediate's key."""

    def signed(name: str, key: rsa.RSAPrivateKey, issuer: str, issuer_key: rsa.RSAPrivateKey) -> x509.Certificate:
        now = datetime.datetime.fromtimestamp(CLOCK.time(), datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(signing.subject(name)).issuer_name(signing.subject(issuer))
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=3650))
        return builder.add_extension(x509.BasicConstraints(True, None), critical=True).sign(issuer_key, hashes.SHA256())

    root_key, key = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    bundle = b"".join(
        each.public_bytes(serialization.Encoding.PEM)
        for each in (signed("middle", key, "root", root_key), signed("root", root_key, "root", root_key))
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    return bundle, pem


def test_one_that_was_placed_beforehand_signs_and_its_chain_is_shown(tmp_path: Path) -> None:
    where = paths(tmp_path)
    bundle, key = _chain()
    where.tls.mkdir(parents=True)
    (where.tls / "server-ca.crt").write_bytes(bundle)
    (where.tls / "server-ca.key").write_bytes(key)
    found = authorities.ensure(where, CLOCK, ENTROPY)
    assert found.bundle(SERVER_CA) == bundle
    leaf = Leaf(tmp_path / "x.crt", SERVER_CA, "x", "x", served=("127.5.5.5",))
    certificates.ensure([leaf], found, CLOCK, ENTROPY)
    shown = x509.load_pem_x509_certificates(leaf.path.read_bytes())
    assert [each.subject.rfc4514_string() for each in shown] == ["CN=x", "CN=middle"]
    shown[0].verify_directly_issued_by(shown[1])


def test_half_of_one_is_refused(tmp_path: Path) -> None:
    where = paths(tmp_path)
    bundle, _ = _chain()
    where.tls.mkdir(parents=True)
    (where.tls / "server-ca.crt").write_bytes(bundle)
    with pytest.raises(PkiError, match=r"server-ca\.key is not"):
        authorities.ensure(where, CLOCK, ENTROPY)
    (where.tls / "server-ca.key").write_bytes(_chain()[1])
    with pytest.raises(PkiError, match="do not belong together"):
        authorities.ensure(where, CLOCK, ENTROPY)


def test_certificates_are_kept_until_they_do_not_fit_any_more(tmp_path: Path) -> None:
    found = authorities.ensure(paths(tmp_path), CLOCK, ENTROPY)
    leaves = certificates.server_leaves(told(tmp_path))
    clock = VirtualClock(CLOCK.time())
    certificates.ensure(leaves, found, clock, ENTROPY)
    before = {leaf.path: leaf.path.read_bytes() for leaf in leaves}
    certificates.ensure(leaves, found, clock, ENTROPY)
    assert before == {leaf.path: leaf.path.read_bytes() for leaf in leaves}
    serving = next(leaf for leaf in leaves if leaf.path.name == "serving-kube-apiserver.crt")
    assert {"127.5.5.5", "n", "outside.example", "kubernetes", "localhost"} <= set(serving.served)
    later = VirtualClock(CLOCK.time() + 250 * 86400)
    certificates.ensure(leaves, found, later, ENTROPY)
    assert all(before[leaf.path] != leaf.path.read_bytes() for leaf in leaves)


def test_a_node_gets_a_certificate_for_its_own_name_whatever_it_asks_for(tmp_path: Path) -> None:
    found = authorities.ensure(paths(tmp_path), CLOCK, ENTROPY)
    key = signing.new_key(ENTROPY)
    asked = x509.CertificateSigningRequestBuilder().subject_name(signing.subject("system:admin", ("system:masters",)))
    request = asked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    leaf = certificates.kubelet_leaf(0, "n", ())
    signed = x509.load_pem_x509_certificate(certificates.signed_for(request, leaf, found, CLOCK, ENTROPY))
    assert signed.subject == signing.subject("system:node:n", ("system:nodes",))
    assert signed.public_key() == key.public_key()
    with pytest.raises(ValueError):
        certificates.signed_for(b"nothing", leaf, found, CLOCK, ENTROPY)


class Etcd:
    """As much of it as the bootstrap data needs."""

    def __init__(self) -> None:
        self.value: bytes | None = None
        self.revision = 0

    async def get(self, key: str) -> object:
        from remuda.lab.distro.etcd.client import Key

        return None if self.value is None else Key(self.value, self.revision)

    async def replace(self, key: str, value: bytes, revision: int) -> bool:
        if revision != self.revision:
            return False
        self.value, self.revision = value, self.revision + 1
        return True


async def test_servers_of_one_etcd_agree_and_others_are_refused(tmp_path: Path) -> None:
    etcd = Etcd()
    own = authorities.ensure(paths(tmp_path / "a"), CLOCK, ENTROPY)
    password = "a-password-long-enough"
    assert (await bootstrap_data.agree(etcd, own, password, ENTROPY)).files == own.files  # type: ignore[arg-type]
    assert etcd.value is not None and b"PRIVATE KEY" not in etcd.value
    # Another server has rotated the keys of encryption since.
    rotated = Authorities({**own.files, ENCRYPTION: authorities.first_encryption_keys(CLOCK, Entropy(9))})
    assert (await bootstrap_data.agree(etcd, rotated, password, ENTROPY)).encryption == own.encryption  # type: ignore[arg-type]
    with pytest.raises(WrongToken):
        await bootstrap_data.agree(etcd, own, "another-password-it-is", ENTROPY)  # type: ignore[arg-type]
    other = authorities.ensure(paths(tmp_path / "b"), CLOCK, ENTROPY)
    with pytest.raises(PkiError, match="another one"):
        await bootstrap_data.agree(etcd, other, password, ENTROPY)  # type: ignore[arg-type]
