"""Which new authorities a running cluster takes, and which it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from remuda.kube import certificates as signing
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Entropy, VirtualClock
from remuda.lab.distro.pki import authorities, ca_rotation, certificates
from remuda.lab.distro.pki.authorities import CAS, ENCRYPTION, SERVER_CA, SERVICE_KEY, Authorities, Files

from .new_authorities import cross_signed, signed

CLOCK, ENTROPY = VirtualClock(), Entropy(11)


@pytest.fixture(scope="module")
def old() -> Authorities:
    files = authorities.made(CLOCK, ENTROPY)
    return Authorities(
        {**files, SERVICE_KEY: signing.new_key_pem(ENTROPY), ENCRYPTION: authorities.first_encryption_keys(CLOCK, ENTROPY)}
    )


def _placed(directory: Path, files: Files) -> Path:
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def test_cross_signed_ones_are_trusted(old: Authorities, tmp_path: Path) -> None:
    new = ca_rotation.read(_placed(tmp_path, cross_signed(old, CLOCK, ENTROPY)), old)
    ca_rotation.check_usable(new, CLOCK)
    assert ca_rotation.untrusted(old, new) == []
    assert new.encryption == old.encryption and len(new.differences(old)) == 2 * len(CAS) + 1


def test_what_is_not_there_stays(old: Authorities, tmp_path: Path) -> None:
    files = cross_signed(old, CLOCK, ENTROPY)
    some = {name: files[name] for name in ("tls/server-ca.crt", "tls/server-ca.key")}
    new = ca_rotation.read(_placed(tmp_path, {**some, "tls/client-ca.crt": b"\n", ENCRYPTION: b"not taken"}), old)
    assert new.differences(old) == ["tls/server-ca.key", "tls/server-ca.crt"]
    assert ca_rotation.untrusted(old, new) == []


def test_an_intermediate_of_the_same_root_is_trusted(old: Authorities) -> None:
    """A user's own root stays, and signs another intermediate CA."""
    before = old.ca(SERVER_CA)
    key = signing.new_key(ENTROPY)
    bundle = signing.certificate_pem(signed("middle", key, before.certificate.subject, before.key, CLOCK)) + old.bundle(SERVER_CA)
    new = Authorities({**old.files, "tls/server-ca.crt": bundle, "tls/server-ca.key": signing.key_pem(key)})
    ca_rotation.check_usable(new, CLOCK)
    assert ca_rotation.untrusted(old, new) == []


def test_others_are_not_trusted_and_the_reasons_are_told(old: Authorities) -> None:
    files = {**old.files, **authorities.made(CLOCK, ENTROPY), SERVICE_KEY: signing.new_key_pem(ENTROPY)}
    told = ca_rotation.untrusted(old, Authorities(files))
    assert len(told) == 2 * len(CAS) + 1
    assert "no certificate of the old server-ca.crt has signed the new one" in told[0]
    assert "the new server-ca.crt does not contain the old root" in told[1]
    assert "the new service.key does not contain the old key" in told[-1]


def test_a_bundle_without_the_old_root_is_not_trusted(old: Authorities) -> None:
    """New servers would not accept the certificates of those that are yet to restart."""
    files = cross_signed(old, CLOCK, ENTROPY)
    kept = signing.parse_certificates(files["tls/etcd/peer-ca.crt"])[:-1]
    files["tls/etcd/peer-ca.crt"] = b"".join(map(signing.certificate_pem, kept))
    (told,) = ca_rotation.untrusted(old, Authorities({**old.files, **files}))
    assert told.startswith("the new etcd/peer-ca.crt does not contain the old root")


def test_a_signature_by_another_key_of_the_same_name_is_none(old: Authorities) -> None:
    before, key = old.ca(SERVER_CA), signing.new_key(ENTROPY)
    forged = signed("middle", key, before.certificate.subject, signing.new_key(ENTROPY), CLOCK)
    bundle = signing.certificate_pem(forged) + old.bundle(SERVER_CA)
    new = Authorities({**old.files, "tls/server-ca.crt": bundle, "tls/server-ca.key": signing.key_pem(key)})
    assert "no certificate of the old server-ca.crt" in ca_rotation.untrusted(old, new)[0]


@pytest.mark.parametrize("broken", ["key", "leaf", "expired"])
def test_unusable_files_are_refused_even_if_forced(old: Authorities, broken: str) -> None:
    files = cross_signed(old, CLOCK, ENTROPY)
    if broken == "key":
        files["tls/client-ca.key"] = signing.new_key_pem(ENTROPY)
    elif broken == "leaf":
        before = old.ca("client-ca")
        key = signing.new_key(ENTROPY)
        leaf = signed("leaf", key, before.certificate.subject, before.key, CLOCK, ca=False)
        files["tls/client-ca.crt"], files["tls/client-ca.key"] = signing.certificate_pem(leaf), signing.key_pem(key)
    later = VirtualClock(CLOCK.time() + 3651 * signing.DAY) if broken == "expired" else CLOCK
    with pytest.raises(PkiError, match=r"do not belong together|is no CA's|has expired"):
        ca_rotation.check_usable(Authorities({**old.files, **files}), later)


def test_certificates_are_shown_with_a_chain_to_the_old_root(old: Authorities, tmp_path: Path) -> None:
    new = Authorities({**old.files, **cross_signed(old, CLOCK, ENTROPY)})
    leaf = certificates.kubelet_leaf(1, "n", ["127.5.5.5"], tmp_path)
    certificates.make(leaf, old, CLOCK, ENTROPY)
    certificates.ensure([leaf], new, CLOCK, ENTROPY)
    shown = x509.load_pem_x509_certificates(leaf.path.read_bytes())
    assert [each.subject.rfc4514_string() for each in shown] == ["CN=n", "CN=new-server-ca", "CN=new-server-ca-root"]
    assert shown[-1].issuer == old.ca(SERVER_CA).certificate.subject, "not the root that signs itself"


def test_servers_know_which_ones_were_theirs(old: Authorities) -> None:
    new = Authorities({**old.files, **cross_signed(old, CLOCK, ENTROPY)})
    other_keys = Authorities({**old.files, ENCRYPTION: authorities.first_encryption_keys(CLOCK, ENTROPY)})
    assert old.fingerprint == other_keys.fingerprint != new.fingerprint
