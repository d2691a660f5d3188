"""Keys that several servers share in a directory: made once, whole or not at all, and never half of one and half of another."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from cryptography import x509

from remuda.apiserver.keys import shared_keys as module
from remuda.apiserver.keys.encryption import EncryptionError
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.keys.shared_keys import FILES, KeyMaterial, ensure_directory, is_unmade, made, read_directory
from remuda.kube import certificates
from remuda.kube.certificates import DAY, PkiError
from remuda.kube.clock import Clock, Entropy, VirtualClock
from tests.unit.certificates import issue_client


def ensure(directory: Path, clock: Clock | None = None) -> KeyMaterial:
    return ensure_directory(directory, clock or VirtualClock(), Entropy())


def replica(directory: Path, material: KeyMaterial, host: str = "10.0.0.1", clock: Clock | None = None) -> Pki:
    return Pki.ensure(directory, [host], clock or VirtualClock(), Entropy(), material)


def load(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def test_an_absent_or_empty_directory_is_filled_and_then_kept(tmp_path: Path) -> None:
    first = ensure(tmp_path / "new" / "pki")
    assert (tmp_path / "new" / "pki").stat().st_mode & 0o777 == 0o700
    assert {path.name for path in (tmp_path / "new" / "pki").iterdir()} == set(FILES)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "new" / "pki").iterdir())
    assert ensure(tmp_path / "new" / "pki") == first
    (tmp_path / "empty").mkdir()
    assert ensure(tmp_path / "empty").ca_key != first.ca_key


def test_a_copied_directory_is_the_same_material(tmp_path: Path) -> None:
    first = ensure(tmp_path / "a")
    for name, content in first.files().items():
        (tmp_path / "b").mkdir(exist_ok=True)
        (tmp_path / "b" / name).write_bytes(content)
        (tmp_path / "b" / name).chmod(0o600)
    assert ensure(tmp_path / "b") == first


@pytest.mark.parametrize("name", FILES)
def test_a_file_missing_among_others_is_named_and_not_made(tmp_path: Path, name: str) -> None:
    ensure(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(PkiError, match=rf"{name} is missing, but .* are there: copy it"):
        ensure(tmp_path)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["ca.key", "service-account.key", "encryption.yaml"])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, name: str) -> None:
    ensure(tmp_path)
    (tmp_path / name).chmod(0o640)
    with pytest.raises(PkiError, match=rf"chmod 600 .*{name}"):
        ensure(tmp_path)


def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    ensure(tmp_path / "a")
    other = ensure(tmp_path / "b")
    (tmp_path / "a" / "ca.crt").write_bytes(other.ca_certificate)
    with pytest.raises(PkiError, match="do not belong together"):
        ensure(tmp_path / "a")


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    ensure(tmp_path)
    (tmp_path / name).write_bytes(b"-----BEGIN nothing")
    with pytest.raises((PkiError, EncryptionError), match=name):
        ensure(tmp_path)


def test_servers_that_start_at_the_same_moment_get_the_same(tmp_path: Path) -> None:
    found: list[KeyMaterial] = []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        found.append(ensure(tmp_path / "pki"))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8
    assert len({each.ca_key for each in found}) == 1
    assert len({each.encryption for each in found}) == 1


def test_a_mark_that_is_left_beside_whole_keys_takes_nothing_from_them(tmp_path: Path) -> None:
    """As after a power cut, or a server that was killed when another had just made them."""
    first = ensure(tmp_path)
    (tmp_path / ".unfinished").touch()
    assert not is_unmade(tmp_path) and read_directory(tmp_path) == first
    assert ensure(tmp_path) == first
    (tmp_path / "encryption.yaml").unlink()
    with pytest.raises(PkiError, match=r"encryption.yaml is missing"):
        ensure(tmp_path)


@pytest.mark.parametrize("crash_after", range(4))
def test_a_crash_while_it_is_filled_is_made_good_by_the_next_start(
    tmp_path: Path, crash_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, written = module.write_private, 0

    def crashing(path: Path, content: bytes) -> None:
        nonlocal written
        if written == crash_after:
            raise KeyboardInterrupt
        written += 1
        real(path, content)

    monkeypatch.setattr(module, "write_private", crashing)
    with pytest.raises(KeyboardInterrupt):
        ensure(tmp_path)
    assert is_unmade(tmp_path)
    monkeypatch.undo()
    ensure(tmp_path).check("the directory")
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)


async def test_the_authority_is_renewed_in_its_last_thirty_days_with_the_same_key(tmp_path: Path) -> None:
    clock = VirtualClock()
    before = ensure(tmp_path / "pki", clock)
    old = replica(tmp_path / "replica", before, clock=clock)
    await clock.advance(3640 * DAY)
    after = ensure(tmp_path / "pki", clock)
    assert after.ca_certificate != before.ca_certificate
    assert after.ca_key == before.ca_key
    assert ensure(tmp_path / "pki", clock) == after
    leaf = load(old.admin_certificate.read_bytes())
    leaf.verify_directly_issued_by(load(after.ca_certificate))


def test_an_address_that_can_not_be_a_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PkiError, match="can't be kept in"):
        ensure(tmp_path / "file" / "pki")


def test_each_replica_has_its_own_certificates_of_the_same_authority(tmp_path: Path) -> None:
    shared = made(VirtualClock(), Entropy())
    one, two = replica(tmp_path / "1", shared, "10.0.0.1"), replica(tmp_path / "2", shared, "10.0.0.2")
    assert one.ca_pem == two.ca_pem == shared.ca_certificate
    assert one.serving_key.read_bytes() != two.serving_key.read_bytes()
    assert one.service_account_pem == two.service_account_pem
    for pki, host in ((one, "10.0.0.1"), (two, "10.0.0.2")):
        certificate = load(pki.serving_certificate.read_bytes())
        certificate.verify_directly_issued_by(load(shared.ca_certificate))
        assert host in certificates.names_in(certificate)
        assert not pki.ca_key.exists(), "the shared keys have one place, and it is not here"
        assert not pki.service_account_key.exists()
    issued = issue_client(one, "alice", ["dev"])
    load(issued.certificate).verify_directly_issued_by(load(two.ca_pem))


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    clock = VirtualClock()
    shared = made(clock, Entropy())
    replica(tmp_path, shared, clock=clock)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    replica(tmp_path, shared, clock=clock)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_replica_that_joins_others_gets_certificates_of_their_authority(tmp_path: Path) -> None:
    replica(tmp_path, made(VirtualClock(), Entropy()))
    shared = made(VirtualClock(), Entropy())
    joined = replica(tmp_path, shared)
    assert joined.ca_pem == shared.ca_certificate
    load(joined.serving_certificate.read_bytes()).verify_directly_issued_by(load(shared.ca_certificate))


def test_the_data_directory_of_a_server_with_an_authority_of_its_own_is_not_taken_over(tmp_path: Path) -> None:
    own = Pki.ensure(tmp_path, [], VirtualClock(), Entropy())
    before = own.ca_pem
    with pytest.raises(PkiError, match="authority of its own"):
        replica(tmp_path, made(VirtualClock(), Entropy()))
    assert own.ca_pem == before
