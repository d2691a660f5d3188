"""A CA that was dropped hands over to the next: who may follow, for how long, over how many, and who may not come in by it."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import msgspec
import pytest

from remuda.agent.ca_trust import CA_CHECKSUM, CaFollower
from remuda.agent.clock import Clock
from remuda.agent.errors import UntrustedServer
from remuda.agent.key_fingerprints import fingerprints
from remuda.agent.plan_secret import KubeApi
from remuda.apiserver.auth.authenticator import BadCredentials, Credentials
from remuda.apiserver.http.listener import server_context
from remuda.apiserver.http.rotation_paths import FinishOptions, RotationPaths
from remuda.apiserver.keys import rotation_record
from remuda.apiserver.keys.ca_followers import NO_REPORT, ONLY_OLD, OTHER, Follower, judged, why_behind
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.keys.rotation_record import KEEPING, MOST_HANDOVERS, Handover, Record
from remuda.apiserver.server import Server
from remuda.apiserver.storage.memory import MemoryStore
from remuda.gateway.server.serving_certificate import ca_checksum
from remuda.kube import certificates
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, VirtualClock
from remuda.kube.errors import ApiError
from remuda.tunnel.clusteragent.server_trust import TrustError, establish
from remuda.tunnel.clusteragent.settings import Settings
from tests.integration.agent.builders import server as web_server
from tests.integration.agent.fakeapi import KUBECONFIG
from tests.integration.tunnel.clusteragent.gate import TOKEN, Gate
from tests.unit.certificates import issue_client
from tests.waiting import until

from .test_rotation import TOKEN as SERVERS_TOKEN
from .test_rotation import begin, reached, serving, shared

__all__ = ["shared"]


async def rotated(server: Server, *, no_handover: bool = False) -> bytes:
    """The CA is another one, and the old one dropped; what the old one was."""
    before = server.trusted
    await begin(server, rotation_record.CA)
    await reached(server, rotation_record.CA, KEEPING)
    assert server.rotations is not None
    await server.rotations.finish(rotation_record.CA, no_handover=no_handover)
    await reached(server, rotation_record.CA)
    return before


def believing(ca: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.decode())
    context.check_hostname = False
    return context


async def is_believed(server: Server, ca: bytes) -> bool:
    """Whether a client with this CA alone, and as strict as they come, connects."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=believing(ca))
    except ssl.SSLCertVerificationError:
        return False
    writer.close()
    return True


# --- who may follow -------------------------------------------------------------------------------------------------------------


async def test_a_client_that_trusts_only_a_dropped_ca_follows_over_several_rotations(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.listen()
        first = await rotated(server)
        second = await rotated(server)
        assert first.count(b"BEGIN") == second.count(b"BEGIN") == server.trusted.count(b"BEGIN") == 1
        for ca in (first, second, server.trusted):
            assert await is_believed(server, ca)
        assert len(server.former) == 2
    async with serving(tmp_path) as server:
        # It is in the store, and not only in the memory of who made it.
        await server.listen()
        assert await is_believed(server, first)
        await server.renew(serving=True)
        assert await is_believed(server, first), "another serving certificate shows it, too"


async def test_a_ca_that_leaves_nothing_ends_what_others_have_left(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.listen()
        first = await rotated(server)
        second = await rotated(server, no_handover=True)
        assert not await is_believed(server, first)
        assert not await is_believed(server, second)
        assert await is_believed(server, server.trusted)
        assert server.former == ()


async def test_a_handover_can_be_ended_later(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.listen()
        first = await rotated(server)
        pages = RotationPaths(server, server.config.clock)
        assert await pages._do(rotation_record.CA, FinishOptions(finish=True, force=False, no_handover=True)) == ()

        async def forgotten() -> bool:
            return not await is_believed(server, first)

        await until(forgotten)
        assert await is_believed(server, server.trusted)
        with pytest.raises(ApiError, match="no old one to drop"):
            await pages._do(rotation_record.CA, FinishOptions(finish=True, force=False, no_handover=True))


async def test_all_servers_of_one_store_show_it(tmp_path: Path, shared: MemoryStore) -> None:
    async with serving(tmp_path / "a", token=SERVERS_TOKEN) as one, serving(tmp_path / "b", token=SERVERS_TOKEN) as two:
        for each in (one, two):
            await each.listen()
        first = await rotated(one)
        for each in (one, two):
            assert await is_believed(each, first)
            assert each.former == one.former
        async with serving(tmp_path / "c", token=SERVERS_TOKEN) as three:
            await three.listen()
            assert await is_believed(three, first)


def test_a_handover_ends_by_its_date_and_so_do_those_before_it() -> None:
    def left(name: str, until: float) -> Handover:
        return Handover((name,), f"{name} vouches", f"{name} and the next", until)

    known = Record()
    for number in range(MOST_HANDOVERS + 2):
        known = rotation_record.with_handover(known, left(str(number), 100.0 + number), 0.0)
    assert [each.old for each in known.handovers] == [("5",), ("4",), ("3",), ("2",)]
    assert [each.old for each in rotation_record.handovers_at(known, 103.5)] == [("5",), ("4",)]
    early = msgspec.structs.replace(known, handovers=(left("new", 50.0), *known.handovers))
    assert rotation_record.handovers_at(early, 60.0) == (), "the others lead only to the one that has ended"
    assert rotation_record.with_handover(known, None, 0.0).handovers == ()


async def test_the_certificate_shows_a_handover_for_a_year_and_no_longer(tmp_path: Path) -> None:
    clock = VirtualClock(start=SYSTEM_CLOCK.time())
    async with serving(tmp_path, clock=clock) as server:
        first = await rotated_by(clock, server)
        assert server.pki is not None
        (leaf, cross) = certificates.parse_certificates(server.pki.serving_certificate.read_bytes())
        (old,) = certificates.parse_certificates(first)
        cross.verify_directly_issued_by(old)
        assert certificates.ends(cross) - clock.time() == pytest.approx(certificates.HANDOVER_SECONDS, abs=60)
        assert certificates.fingerprint(cross) == certificates.fingerprint(certificates.parse_certificates(server.trusted)[0])
        leaf.verify_directly_issued_by(cross)
        later = VirtualClock(start=clock.time() + certificates.HANDOVER_SECONDS + 60)
        pki = Pki(server.pki.directory, later, Entropy())
        pki.complete(["127.0.0.1"])
        assert len(certificates.parse_certificates(pki.serving_certificate.read_bytes())) == 1


async def rotated_by(clock: VirtualClock, server: Server) -> bytes:
    work = asyncio.create_task(rotated(server))
    while not work.done():
        await clock.advance(1)
        await asyncio.sleep(0.01)
    return await work


# --- who may not come in by it --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def dropped(directory: Path) -> AsyncIterator[tuple[Server, certificates.Authority]]:
    """A server whose CA was dropped while it ran, and that CA with its key, which somebody has stolen."""
    async with serving(directory) as server:
        assert server.pki is not None
        pki = server.pki
        stolen = certificates.authority_of(pki.ca_pem, pki.ca_key.read_bytes(), ("ca.crt", "ca.key"))
        await rotated(server)
        await server.listen()
        yield server, stolen


def client_of(authority: certificates.Authority, name: str = "mallory") -> tuple[bytes, bytes]:
    key = certificates.new_key(Entropy())
    subject = certificates.subject(name, ["system:masters"])
    made = certificates.sign_leaf(authority, key, subject, 3600, (), SYSTEM_CLOCK, Entropy())
    return made, certificates.key_pem(key)


async def test_a_client_certificate_of_a_dropped_ca_opens_nothing_by_way_of_an_intermediate(tmp_path: Path) -> None:
    """TLS never forgets an authority while a process runs, so who authenticates has to look."""
    async with dropped(tmp_path) as (server, stolen):
        key = certificates.new_key(Entropy())
        between = certificates.sign_authority(key, SYSTEM_CLOCK, Entropy(), "between")
        signed = certificates.cross_signed(stolen, between, SYSTEM_CLOCK, Entropy())
        (intermediate,) = certificates.parse_certificates(signed)
        for authority in (stolen, certificates.Authority(intermediate, key)):
            leaf, _ = client_of(authority)
            with pytest.raises(BadCredentials):
                await server.chain.identify(Credentials(ssl.PEM_cert_to_DER_cert(leaf.decode())))
        assert server.pki is not None
        good = issue_client(server.pki, "jane").certificate
        assert await server.chain.identify(Credentials(ssl.PEM_cert_to_DER_cert(good.decode()))) is not None


def test_a_cross_certificate_vouches_for_servers_only(tmp_path: Path) -> None:
    """Where the old CA is that of clients, certificates of the new one are none of it."""
    old, new = (Pki.ensure(tmp_path / name, ["127.0.0.1"], SYSTEM_CLOCK, Entropy()) for name in ("old", "new"))
    old_ca, new_ca = (
        certificates.authority_of(each.ca_pem, each.ca_key.read_bytes(), ("ca.crt", "ca.key")) for each in (old, new)
    )
    # Both are called remuda-ca, which two that follow each other are not.
    renamed = certificates.sign_authority(new_ca.key, SYSTEM_CLOCK, Entropy(), "remuda-ca-2")
    cross = certificates.cross_signed(old_ca, renamed, SYSTEM_CLOCK, Entropy())
    leaf, key = client_of(certificates.Authority(renamed, new_ca.key))
    path = tmp_path / "client.pem"
    path.write_bytes(leaf + cross + key)
    accepting = server_context(old.serving_certificate, old.serving_key, old.ca_certificate)
    client = believing(old.ca_pem)
    client.load_cert_chain(path)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"purpose|unsuitable"):
        _handshake(accepting, client)


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """In memory, until both are through. Raises what the server says of the client."""
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    at_server, at_client = server.wrap_bio(one, two, server_side=True), client.wrap_bio(two, one)
    for _ in range(10):
        for each in (at_client, at_server):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
    at_server.do_handshake()


# --- hosts ----------------------------------------------------------------------------------------------------------------------


class _Told:
    """What a server hands out, and the tokens that it was shown."""

    def __init__(self, ca: bytes) -> None:
        self.ca = ca
        self.shown: list[str] = []

    def __call__(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.shown.append(request.headers.get("Authorization") or "")
        found = {"value": self.ca.decode()} if request.path == "/v3/settings/cacerts" else {}
        return 200, {}, json.dumps(found).encode()


def _host(path: Path, url: str, ca: bytes) -> tuple[KubeApi, CaFollower]:
    field = f"    certificate-authority-data: {base64.b64encode(ca).decode()}\n"
    config = KUBECONFIG.format(url=url, ca=field)
    path.write_text(json.dumps({"kubeConfig": config, "namespace": "ns", "secretName": "plan"}))
    path.chmod(0o600)
    api = KubeApi(config, strict=True)
    return api, CaFollower(api, str(path), Clock(), threading.Event())


async def test_a_host_that_was_away_for_the_whole_rotation_pins_the_new_ca(tmp_path: Path) -> None:
    async with serving(tmp_path / "server") as server:
        first = await rotated(server)
        assert server.pki is not None
        context = server_context(server.pki.serving_certificate, server.pki.serving_key, None)
        now, old = server.trusted, fingerprints(first.decode())
    told = _Told(now)
    path = tmp_path / "connection.json"
    with web_server(told, context) as url:
        api, trusting = _host(path, url, first)
        assert trusting.trusted() == old
        assert await asyncio.to_thread(trusting.refresh)
        assert api.ca.encode() == now
        assert trusting.trusted() == [certificates.fingerprint(certificates.parse_certificates(now)[0])]
        assert base64.b64encode(now).decode() in json.loads(path.read_text())["kubeConfig"], "the next agent on it knows it"


async def test_a_host_shows_its_token_to_no_server_that_its_ca_does_not_vouch_for(tmp_path: Path) -> None:
    async with serving(tmp_path / "server") as server:
        first = await rotated(server, no_handover=True)
        assert server.pki is not None
        context = server_context(server.pki.serving_certificate, server.pki.serving_key, None)
        told = _Told(server.trusted)
    with web_server(told, context) as url:
        api, trusting = _host(tmp_path / "connection.json", url, first)
        with pytest.raises(UntrustedServer):
            await asyncio.to_thread(trusting.refresh)
        assert (told.shown, api.ca.encode()) == ([], first)


def test_a_host_looks_at_once_when_its_plan_says_that_there_is_another_ca(tmp_path: Path) -> None:
    pki = Pki.ensure(tmp_path / "pki", ["127.0.0.1"], SYSTEM_CLOCK, Entropy())
    _, trusting = _host(tmp_path / "connection.json", "https://127.0.0.1:1", pki.ca_pem)

    def wakes(checksum: str) -> bool:
        trusting._wake.clear()
        trusting.notice({"metadata": {"annotations": {CA_CHECKSUM: checksum}}})
        return trusting._wake.is_set()

    trusting.notice({"metadata": {}})
    assert not trusting._wake.is_set()
    assert not wakes(ca_checksum(pki.ca_pem.decode())), "it has that one"
    assert wakes("0" * 64)
    assert not wakes("0" * 64), "once for each"


def test_a_ca_is_known_by_its_key(tmp_path: Path) -> None:
    made = [Pki.ensure(tmp_path / name, [], SYSTEM_CLOCK, Entropy()) for name in "ab"]
    bundle = b"".join(each.ca_pem for each in made)
    expected = [certificates.fingerprint(each) for each in certificates.parse_certificates(bundle)]
    assert fingerprints(bundle.decode()) == expected
    renewed = certificates.renewed_authority(
        certificates.authority_of(made[0].ca_pem, made[0].ca_key.read_bytes(), ("", "")), SYSTEM_CLOCK, Entropy()
    )
    assert fingerprints(certificates.certificate_pem(renewed).decode()) == expected[:1]
    cut = base64.b64encode(base64.b64decode("".join(made[0].ca_pem.decode().splitlines()[1:-1]))[:90]).decode()
    for text in ("", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", cut.join(_ARMOUR)):
        assert fingerprints(text) == []


_ARMOUR = ("-----BEGIN CERTIFICATE-----\n", "\n-----END CERTIFICATE-----\n")


# --- cluster agents -------------------------------------------------------------------------------------------------------------


async def test_a_cluster_agent_with_any_checksum_of_before_finds_the_new_ca(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert server.pki is not None
        first = server.trusted
        await begin(server, rotation_record.CA)
        await reached(server, rotation_record.CA, KEEPING)
        both = server.trusted
        assert server.rotations is not None
        await server.rotations.finish(rotation_record.CA)
        await reached(server, rotation_record.CA)
        gate = Gate(server.pki)
        gate.former = list(server.former)
        await gate.open()
        try:
            for known in (first, both, server.trusted):
                settings = Settings(gate.url, TOKEN, ca_checksum(known.decode()), True)
                found = await establish(settings, SYSTEM_CLOCK, "")
                assert found.ca == server.trusted
        finally:
            await gate.close()


async def test_a_cluster_agent_does_not_trust_a_server_that_only_repeats_its_old_ca(tmp_path: Path) -> None:
    """Bundles of before are public, as checksums may be: what counts is a certificate that the old CA vouches for."""
    async with serving(tmp_path / "server") as server:
        first = await rotated(server)
        former = list(server.former)
    stranger = Gate(Pki.ensure(tmp_path / "stranger", ["127.0.0.1"], SYSTEM_CLOCK, Entropy()))
    stranger.former = former
    await stranger.open()
    try:
        with pytest.raises(TrustError, match="not to be believed"):
            await establish(Settings(stranger.url, TOKEN, ca_checksum(first.decode()), True), SYSTEM_CLOCK, "")
        assert stranger.contacts == [] and "/ping" not in stranger.asked
    finally:
        await stranger.close()


# --- before the old one is dropped ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trusts", "why"),
    [(("new",), ""), (("old", "new"), ""), ((), ""), (("old",), ONLY_OLD), (("foreign",), OTHER), (None, NO_REPORT)],
)
def test_who_would_be_cut_off(trusts: tuple[str, ...] | None, why: str) -> None:
    assert why_behind(Follower(kind="host", name="a", trusts=trusts), "new", ["old"]) == why


def test_clients_are_counted_and_named() -> None:
    found = judged(
        [
            Follower(kind="host", name="ns/b", cluster="demo", trusts=("old",), silent_since="2026-01-01T00:00:00Z"),
            Follower(kind="host", name="ns/a", cluster="demo", trusts=("new",)),
            Follower(kind="cluster agent", name="c-1", cluster="c-1"),
        ],
        "new",
        ["old"],
    )
    assert found.total == 3
    assert [each.words for each in found.behind] == [
        "cluster agent c-1 does not report which CA it trusts",
        "host ns/b of demo trusts only the old CA, silent since 2026-01-01T00:00:00Z",
    ]


async def test_an_old_ca_is_dropped_only_when_all_trust_the_new_one_or_by_force(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        pages = RotationPaths(server, server.config.clock)
        trusts: list[str] = []

        async def clients() -> list[Follower]:
            return [Follower(kind="host", name=f"ns/h{number:02}", trusts=tuple(trusts)) for number in range(30)]

        server.followers.append(clients)
        (old,) = certificates.parse_certificates(server.trusted)
        trusts.append(certificates.fingerprint(old))
        finish = FinishOptions(finish=True, force=False, no_handover=False)
        await pages._do(rotation_record.CA, FinishOptions(finish=False, force=False, no_handover=False))
        await reached(server, rotation_record.CA, KEEPING)
        before = await rotation_record.read(server.store)
        with pytest.raises(ApiError, match=r"30 of 30 hosts .* \(ns/h00, ns/h01, ns/h02 and 27 more\).*--force") as refused:
            await pages._do(rotation_record.CA, finish)
        assert refused.value.code == 409 and len((refused.value.details or {})["causes"]) == 30
        assert await rotation_record.read(server.store) == before, "nothing has changed"
        told = (await pages._told())["keys"][1]
        assert (told["clients"]["total"], len(told["clients"]["behind"])) == (30, 30)
        forced = await pages._do(rotation_record.CA, finish._replace(force=True))
        assert [each.name for each in forced][:2] == ["ns/h00", "ns/h01"]
        await reached(server, rotation_record.CA)
        told = (await pages._told())["keys"][1]
        assert [each["from"] for each in told["handovers"]] == [[certificates.fingerprint(old)]]
        # Those that have followed don't hold up the next one.
        trusts[:] = [told["used"]]
        await pages._do(rotation_record.CA, FinishOptions(finish=False, force=False, no_handover=False))
        await reached(server, rotation_record.CA, KEEPING)
        trusts.append((await rotation_record.read(server.store)).record.active[rotation_record.CA].new)
        assert await pages._do(rotation_record.CA, finish) == ()
        await reached(server, rotation_record.CA)
