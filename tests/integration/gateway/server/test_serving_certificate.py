"""The listener's certificate: changed under way, and never for one that does not work."""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from pathlib import Path

import pytest

from remuda.apiserver.keys.pki import Pki
from remuda.gateway.server.serving_certificate import CertificateError, Files, ServingCertificate, ca_checksum, ca_text
from remuda.kube import certificates
from remuda.kube.certificates import DAY, Authority
from remuda.kube.clock import Clock, Entropy, SystemClock, VirtualClock


class Maker:
    """A CA of the test's own and the files of a server."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.clock = clock
        key = certificates.new_key(Entropy())
        self.authority = Authority(certificates.sign_authority(key, clock, Entropy()), key)
        self.files = Files(directory / "tls.crt", directory / "tls.key", directory / "ca.crt")
        assert self.files.ca is not None
        self.files.ca.write_bytes(certificates.certificate_pem(self.authority.certificate))

    def pair(self, name: str, seconds: int = DAY) -> tuple[bytes, bytes]:
        key = certificates.new_key(Entropy())
        leaf = certificates.sign_leaf(self.authority, key, certificates.subject("x"), seconds, (name,), self.clock, Entropy())
        return leaf, certificates.key_pem(key)

    def put(self, name: str, seconds: int = DAY) -> None:
        leaf, key = self.pair(name, seconds)
        self.files.certificate.write_bytes(leaf)
        self.files.key.write_bytes(key)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def maker(tmp_path: Path, clock: VirtualClock) -> Maker:
    made = Maker(tmp_path, clock)
    made.put("one.example")
    return made


# --- what is not served ---------------------------------------------------------------------------------------------------


def broken(maker: Maker, how: str) -> None:
    files = maker.files
    assert files.ca is not None
    leaf, key = maker.pair("other.example")
    match how:
        case "no certificate":
            files.certificate.unlink()
        case "no key":
            files.key.unlink()
        case "empty":
            files.key.write_bytes(b"")
        case "half":
            files.certificate.write_bytes(leaf[: len(leaf) // 2])
        case "another key":
            files.certificate.write_bytes(leaf)
        case "garbage":
            files.certificate.write_bytes(b"\xff" * 1000)
        case "swapped":
            files.certificate.write_bytes(key)
            files.key.write_bytes(leaf)
        case "too large":
            files.certificate.write_bytes(leaf + b"\n" * (2 << 20))
        case "a key as the CA":
            files.ca.write_bytes(files.ca.read_bytes() + key)
        case "no CA":
            files.ca.write_bytes(b"nothing")
        case "a directory":
            files.key.unlink()
            files.key.mkdir()
        case "protected":
            from cryptography.hazmat.primitives import serialization as s

            private = certificates.parse_key(key, "")
            protected = s.BestAvailableEncryption(b"password")
            files.certificate.write_bytes(leaf)
            files.key.write_bytes(private.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, protected))


_BREAKAGES = (
    "no certificate",
    "no key",
    "empty",
    "half",
    "another key",
    "garbage",
    "swapped",
    "too large",
    "a key as the CA",
    "no CA",
    "a directory",
    "protected",
)


@pytest.mark.parametrize("how", _BREAKAGES)
def test_what_can_not_be_served_is_told_at_the_start_with_the_files_name(maker: Maker, clock: VirtualClock, how: str) -> None:
    broken(maker, how)
    with pytest.raises(CertificateError) as caught:
        ServingCertificate(maker.files, clock)
    assert str(maker.files.certificate.parent) in str(caught.value)
    assert "BEGIN" not in str(caught.value)


@pytest.mark.parametrize("how", _BREAKAGES)
def test_what_can_not_be_served_changes_nothing_under_way_and_is_told(maker: Maker, clock: VirtualClock, how: str) -> None:
    serving = ServingCertificate(maker.files, clock)
    before = serving.serving
    broken(maker, how)
    assert not serving.look()
    assert serving.serving == before
    assert serving.problem
    if how == "a directory":
        maker.files.key.rmdir()
    Maker(maker.files.certificate.parent, clock).put("two.example")
    assert serving.look()
    assert (serving.serving.names, serving.problem) == (("two.example",), "")


def test_a_certificate_that_has_ended_does_not_replace_one_that_has_not(maker: Maker, clock: VirtualClock) -> None:
    serving = ServingCertificate(maker.files, clock)
    maker.put("ended.example", seconds=-1)
    assert not serving.look()
    assert serving.serving.names == ("one.example",)
    assert "the previous one is still served" in serving.problem


async def test_one_that_ends_under_way_is_told_and_any_other_is_better(maker: Maker, clock: VirtualClock) -> None:
    serving = ServingCertificate(maker.files, clock)
    assert serving.problem == ""
    await clock.advance(2 * DAY)
    assert not serving.look()
    assert "not valid now" in serving.problem
    maker.put("two.example")
    assert serving.look()
    assert serving.problem == ""


def test_a_server_starts_with_one_that_has_ended_and_says_so(maker: Maker, clock: VirtualClock) -> None:
    maker.put("ended.example", seconds=-1)
    assert "not valid now" in ServingCertificate(maker.files, clock).problem


# --- what is --------------------------------------------------------------------------------------------------------------


def test_nothing_happens_while_nothing_changes(maker: Maker, clock: VirtualClock) -> None:
    serving = ServingCertificate(maker.files, clock)
    assert not serving.look()
    os.utime(maker.files.certificate)
    assert not serving.look()
    assert serving.problem == ""


def test_a_key_that_comes_after_its_certificate_is_waited_for(maker: Maker, clock: VirtualClock) -> None:
    serving = ServingCertificate(maker.files, clock)
    leaf, key = maker.pair("two.example")
    maker.files.certificate.write_bytes(leaf)
    assert not serving.look()
    assert "do not belong together" in serving.problem
    maker.files.key.write_bytes(key)
    assert serving.look()
    assert serving.serving.names == ("two.example",)


def test_a_mounted_secret_changes_by_its_link(tmp_path: Path, clock: VirtualClock) -> None:
    makers = []
    for name in ("one.example", "two.example"):
        (tmp_path / name).mkdir()
        makers.append(Maker(tmp_path / name, clock))
        makers[-1].put(name)
    link = tmp_path / "data"
    link.symlink_to("one.example")
    serving = ServingCertificate(Files(link / "tls.crt", link / "tls.key"), clock)
    fresh = tmp_path / "fresh"
    fresh.symlink_to("two.example")
    fresh.replace(link)
    assert serving.look()
    assert (serving.serving.names, serving.serving.ca) == (("two.example",), "")


async def test_it_is_looked_at_now_and_then(maker: Maker, clock: VirtualClock) -> None:
    serving = ServingCertificate(maker.files, clock, every=10)
    task = asyncio.create_task(serving.follow())
    maker.put("two.example")
    await clock.advance(9)
    assert serving.serving.names == ("one.example",)
    await clock.advance(2)
    assert serving.serving.names == ("two.example",)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_new_connections_see_the_new_one_and_old_ones_go_on(tmp_path: Path) -> None:
    maker = Maker(tmp_path, SystemClock())
    maker.put("one.example")
    serving = ServingCertificate(maker.files, SystemClock())

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=serving.context)
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cadata=serving.serving.ca)

    async def connected(name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=name)

    reader, writer = await connected("one.example")
    maker.put("two.example")
    assert serving.look()
    _, second = await connected("two.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        await connected("one.example")
    writer.write(b"still here\n")
    assert await reader.readline() == b"still here\n"
    for one in (writer, second):
        one.close()
    server.close()


def test_it_is_in_no_other_file_and_only_modern_tls_is_spoken(maker: Maker, clock: VirtualClock) -> None:
    before = set(maker.files.key.parent.iterdir())
    serving = ServingCertificate(maker.files, clock)
    assert set(maker.files.key.parent.iterdir()) == before
    assert serving.context.minimum_version >= ssl.TLSVersion.TLSv1_2


# --- our own --------------------------------------------------------------------------------------------------------------


async def test_our_own_ca_signs_for_new_names_and_before_the_end(tmp_path: Path, clock: VirtualClock) -> None:
    hosts = ["one.example"]
    pki = Pki.ensure(tmp_path, hosts, clock, Entropy())
    serving = ServingCertificate.own(pki, lambda: hosts, clock)
    assert "one.example" in serving.serving.names
    hosts.append("two.example")
    await serving.renew()
    assert "two.example" in serving.serving.names
    assert serving.serving.ca == pki.ca_pem.decode()
    ends = serving.serving.ends
    await clock.advance(350 * DAY)
    await serving.renew()
    assert serving.serving.ends > ends


async def test_a_renewal_that_fails_is_told_and_goes_on_with_the_present_one(maker: Maker, clock: VirtualClock) -> None:
    def renew() -> None:
        raise OSError("disk full")

    serving = ServingCertificate(maker.files, clock, renew=renew)
    await serving.renew()
    assert serving.problem == "the certificate can't be renewed: disk full"
    assert not serving.look()
    assert serving.problem


async def test_given_files_are_not_renewed(maker: Maker, clock: VirtualClock) -> None:
    serving = ServingCertificate(maker.files, clock)
    await serving.renew()
    assert serving.problem == ""


@pytest.mark.parametrize(("pem", "shown"), [("", ""), ("  \n", ""), ("X", "X\n"), ("X\n", "X\n"), ("X\n\n\r\n", "X\n")])
def test_a_ca_is_shown_with_one_end_of_line(pem: str, shown: str) -> None:
    assert ca_text(pem) == shown


def test_the_checksum_is_of_the_ca_with_its_end_of_line() -> None:
    assert ca_checksum("") == ""
    assert ca_checksum("X") == ca_checksum("X\n") == hashlib.sha256(b"X\n").hexdigest()
