"""The data directory's key material: complete after any crash, renewed in time, never replaced behind one's back."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from remuda.apiserver.keys import pki as module
from remuda.apiserver.keys.pki import Pki, serving_names
from remuda.kube.certificates import DAY, PkiError
from remuda.kube.clock import SYSTEM_CLOCK, Clock, Entropy, VirtualClock
from remuda.kube.encoding import yamlio
from tests.unit.certificates import issue_client


def ensure(directory: Path, clock: Clock | None = None, hosts: tuple[str, ...] = ("127.0.0.1",)) -> Pki:
    return Pki.ensure(directory, hosts, clock or VirtualClock(), Entropy())


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_everything_is_private_and_there_after_the_first_start(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    ensure(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in directory.iterdir()} == {
        "ca.key", "ca.crt", "serving.key", "serving.crt", "admin.key", "admin.crt", "service-account.key", "state.json",
    }  # fmt: skip
    for path in directory.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    clock = VirtualClock()
    ensure(tmp_path, clock)
    before = contents(tmp_path)
    ensure(tmp_path, clock)
    assert contents(tmp_path) == before


def test_a_second_start_does_no_x509_work(tmp_path: Path) -> None:
    ensure(tmp_path, SYSTEM_CLOCK)
    program = (
        "import sys; from pathlib import Path; from remuda.apiserver.keys.pki import Pki; "
        "from remuda.kube.clock import SYSTEM_CLOCK, Entropy; "
        f"Pki.ensure(Path({str(tmp_path)!r}), ['127.0.0.1'], SYSTEM_CLOCK, Entropy()); "
        "assert not [m for m in sys.modules if m.startswith('cryptography')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("crash_after", range(8))
def test_a_crash_between_any_two_writes_is_repaired(tmp_path: Path, crash_after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    real, written = module.write_private, 0

    def crashing(path: Path, content: bytes) -> None:
        nonlocal written
        if written == crash_after:
            raise KeyboardInterrupt
        written += 1
        real(path, content)

    monkeypatch.setattr(module, "write_private", crashing)
    with pytest.raises(KeyboardInterrupt):
        ensure(tmp_path, clock)
    kept = contents(tmp_path)
    monkeypatch.undo()
    made = ensure(tmp_path, clock)
    assert kept.items() <= contents(tmp_path).items(), "what was durable is kept"
    load(made.serving_certificate).verify_directly_issued_by(load(made.ca_certificate))
    load(made.admin_certificate).verify_directly_issued_by(load(made.ca_certificate))
    after = contents(tmp_path)
    ensure(tmp_path, clock)
    assert contents(tmp_path) == after


def test_a_half_written_temporary_file_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".ca.key.new").write_bytes(b"half")
    ensure(tmp_path)
    assert not (tmp_path / ".ca.key.new").exists()


async def test_the_serving_certificate_is_renewed_in_its_last_thirty_days_and_the_authority_stays(tmp_path: Path) -> None:
    clock = VirtualClock()
    ensure(tmp_path, clock)
    before = contents(tmp_path)
    await clock.advance(334 * DAY)
    ensure(tmp_path, clock)
    assert contents(tmp_path) == before
    await clock.advance(2 * DAY)
    made = ensure(tmp_path, clock)
    after = contents(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"serving.crt", "admin.crt", "state.json"}
    assert load(made.serving_certificate).not_valid_after_utc.timestamp() == pytest.approx(clock.time() + 365 * DAY, abs=2)


def test_a_new_listen_address_makes_a_new_serving_certificate_only(tmp_path: Path) -> None:
    clock = VirtualClock()
    ensure(tmp_path, clock)
    before = contents(tmp_path)
    made = ensure(tmp_path, clock, ("10.1.2.3", "remuda.example.org"))
    after = contents(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"serving.crt", "state.json"}
    names = load(made.serving_certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "remuda.example.org" in names.get_values_for_type(x509.DNSName)
    assert "10.1.2.3" in map(str, names.get_values_for_type(x509.IPAddress))
    assert "::1" in map(str, names.get_values_for_type(x509.IPAddress))


def test_wildcard_listen_addresses_are_no_names() -> None:
    assert not {"0.0.0.0", "::", ""} & set(serving_names(["0.0.0.0", "[::]", ""]))
    assert "fd00::1" in serving_names(["[FD00:0::1]"])


def test_a_lost_authority_key_is_not_replaced_silently(tmp_path: Path) -> None:
    made = ensure(tmp_path)
    made.ca_key.unlink()
    with pytest.raises(PkiError, match=r"ca\.key is missing"):
        ensure(tmp_path)


def test_an_authority_whose_parts_do_not_match_is_refused(tmp_path: Path) -> None:
    other = ensure(tmp_path / "other")
    made = ensure(tmp_path / "own")
    made.ca_certificate.write_bytes(other.ca_certificate.read_bytes())
    with pytest.raises(PkiError, match="do not belong together"):
        ensure(tmp_path / "own")


def test_a_damaged_key_is_refused_and_not_replaced(tmp_path: Path) -> None:
    made = ensure(tmp_path)
    made.ca_key.write_bytes(b"-----BEGIN nothing")
    with pytest.raises(PkiError, match="put it back from a backup"):
        ensure(tmp_path)
    assert made.ca_key.read_bytes() == b"-----BEGIN nothing"


def test_certificates_of_a_replaced_authority_are_made_anew(tmp_path: Path) -> None:
    other = ensure(tmp_path / "other")
    made = ensure(tmp_path / "own")
    made.ca_certificate.write_bytes(other.ca_certificate.read_bytes())
    made.ca_key.write_bytes(other.ca_key.read_bytes())
    made = ensure(tmp_path / "own")
    load(made.serving_certificate).verify_directly_issued_by(load(other.ca_certificate))
    load(made.admin_certificate).verify_directly_issued_by(load(other.ca_certificate))


def test_the_admin_is_kubernetes_admin_in_system_masters(tmp_path: Path) -> None:
    subject = load(ensure(tmp_path).admin_certificate).subject
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["kubernetes-admin"]
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["system:masters"]


def test_the_kubeconfig_file_is_private_and_complete(tmp_path: Path) -> None:
    made = ensure(tmp_path / "pki")
    path = tmp_path / "admin.kubeconfig"
    made.write_kubeconfig(path, "https://127.0.0.1:8443")
    assert path.stat().st_mode & 0o777 == 0o600
    config = yamlio.loads(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:8443"
    assert config["users"][0]["name"] == "kubernetes-admin"
    assert config["current-context"] == config["contexts"][0]["name"]


async def test_tls_between_the_two_certificates_works(tmp_path: Path) -> None:
    made = ensure(tmp_path, SYSTEM_CLOCK)
    issued = issue_client(made, "alice", ["dev", "ops"], 600)
    (tmp_path / "alice.pem").write_bytes(issued.certificate + issued.key)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made.ca_certificate))
    server_side.load_cert_chain(made.serving_certificate, made.serving_key)
    server_side.verify_mode = ssl.CERT_REQUIRED
    client_side = ssl.create_default_context(cafile=str(made.ca_certificate))
    client_side.load_cert_chain(tmp_path / "alice.pem")
    seen: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server_side)
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_side)
        subject = x509.load_der_x509_certificate(await seen).subject
        writer.close()
    assert subject.rfc4514_string() == "CN=alice,O=ops,O=dev"


def test_a_file_that_several_write_at_once_is_that_of_one_of_them(tmp_path: Path) -> None:
    """As servers do that share a directory of keys, when these are rotated."""
    barrier = threading.Barrier(4)
    whole = {bytes([letter]) * 5000 for letter in b"abcd"}
    seen: set[bytes] = set()

    def write(content: bytes) -> None:
        barrier.wait()
        for _ in range(10):
            module.write_private(tmp_path / "ca.key", content)
            seen.add((tmp_path / "ca.key").read_bytes())

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(write, content) for content in whole]:
            done.result(60)
    assert seen <= whole and [path.name for path in tmp_path.iterdir()] == ["ca.key"]
