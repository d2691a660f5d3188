"""What befalls agents, tunnels and gateways: everybody is told, nobody hangs, and it heals without help."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.gateway.agents.tunnels import keys_of
from tests.real import need, pki

from .harness import Agent, Cluster, Embedded, Gateway, Imported, Person, to_its_end, until
from .test_agent import lines


@pytest.fixture(scope="module")
def admin(gateway: Gateway) -> Person:
    return gateway.administrator()


def works(person: Person, imported: Imported) -> bool:
    return person.request("GET", imported.path("/api/v1/namespaces/default")).status == 200


def test_an_agent_that_is_killed_ends_what_goes_through_it_and_another_takes_its_place(
    gateway: Gateway, imported: Imported, admin: Person
) -> None:
    imported.lets_in(admin)
    with admin.stream(imported.path("/api/v1/namespaces?watch=1")) as watch:
        assert watch.readline()
        imported.agent.kill()
        to_its_end(watch)
    found = imported.cluster.until("Connected", "False")
    assert found.get("message") or found.get("reason"), found
    answer = admin.request("GET", imported.path("/api/v1/namespaces"))
    assert answer.status == 503, answer.body
    assert answer.headers.get("retry-after")
    imported.agent.start()
    imported.cluster.until("Connected", "True")
    until(lambda: works(admin, imported))


def standing(gateway: Gateway, key: str) -> int:
    """How many tunnels there are, as the server tells."""
    return len(lines(gateway, key, "connected")) - len(lines(gateway, key, "ended"))


def test_the_second_of_two_agents_goes_on_when_the_first_is_killed(
    gateway: Gateway, imported: Imported, downstream: Embedded, admin: Person
) -> None:
    replica = Agent(imported.cluster, downstream, called="replica")
    replica.start()
    first = imported.agent
    for key in keys_of(imported.id):
        until(lambda key=key: standing(gateway, key) == 2, log=replica)  # type: ignore[misc]
    first.kill()
    # Now it says nothing more.
    before = first.told().count("connected to")
    try:
        until(lambda: works(admin, imported))
        # The other one may be late with one answer.
        imported.cluster.until("Connected", "True")
    finally:
        first.start()
        until(lambda: first.told().count("connected to") > before, log=first)
        replica.kill()


def test_a_gateway_that_is_killed_finds_its_clusters_again(gateway: Gateway, imported: Imported, admin: Person) -> None:
    with admin.stream(imported.path("/api/v1/namespaces?watch=1")) as watch:
        assert watch.readline()
        gateway.kill()
        to_its_end(watch)
    gateway.start()
    # Its tokens and what it knows of the cluster are still good.
    until(lambda: works(admin, imported), log=imported.agent)
    imported.cluster.until("Connected", "True")


def test_a_token_that_is_rotated_is_good_for_its_time_of_grace(
    gateway: Gateway, imported: Imported, downstream: Embedded, admin: Person
) -> None:
    old = imported.cluster.token()
    path = f"/apis/management.cattle.io/v3/namespaces/{imported.id}/clusterregistrationtokens/default-token"
    body = json.dumps({"metadata": {"annotations": {"remuda.dev/rotate-token": "now"}}}).encode()
    answer = gateway.endpoint.request("PATCH", path, body, {"Content-Type": "application/merge-patch+json"})
    assert answer.status == 200, answer.body
    until(lambda: imported.cluster.token() not in ("", old))
    # Who has the old one stays, and may even come again.
    time.sleep(1)
    assert works(admin, imported)
    imported.agent.kill()
    before = imported.agent.told().count("connected to")
    imported.agent.start()
    until(lambda: works(admin, imported), log=imported.agent)
    # Only what stands, with both of its tunnels, is moved over from.
    until(lambda: imported.agent.told().count("connected to") > before, log=imported.agent)
    # Told the new one, the agent moves over and nobody notices.
    imported.agent.token_file.write_text(imported.cluster.token())
    until(lambda: "the settings or the cluster's address changed" in imported.agent.told(), log=imported.agent)
    for _ in range(20):
        assert works(admin, imported)
        time.sleep(0.1)


def test_a_token_whose_secret_is_gone_is_good_no_more(gateway: Gateway, place: Path, admin: Person) -> None:
    with Embedded(place / "revoked", "revoked") as downstream, gateway.imported(downstream) as imported:
        path = f"/api/v1/namespaces/{imported.id}/secrets/crt-token-default-token"
        old = imported.cluster.token()
        assert gateway.endpoint.request("DELETE", path).status == 200
        until(lambda: imported.cluster.token() not in ("", old))
        imported.cluster.until("Connected", "False")
        until(lambda: "answered 400" in imported.agent.told(), log=imported.agent)
        imported.agent.token_file.write_text(imported.cluster.token())
        imported.cluster.until("Connected", "True")


# It shares its memory under a name made of its pid, and one that is killed leaves that behind for whoever has the pid next.
FAKETIME = 'rm -f /dev/shm/faketime_shm_$$ /dev/shm/sem.faketime_sem_$$; exec faketime -f "$0" "$@"'


@pytest.mark.real
@pytest.mark.parametrize("skew", ["-20m", "+3d", "-3d"])
def test_an_agent_with_a_wrong_clock(gateway: Gateway, imported: Imported, downstream: Embedded, skew: str) -> None:
    """A clock that is days behind knows that a certificate is not valid yet; a tunnel is all the same to any other."""
    if shutil.which("faketime") is None:
        need.absent("faketime is not installed")
    cluster = imported.cluster
    agent = Agent(
        cluster,
        downstream,
        prefix=["sh", "-c", FAKETIME, skew],
        environ={"FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"},
        called=f"skewed{skew}",
    )
    with agent:
        if skew == "-3d":
            until(lambda: "not yet valid" in agent.told(), log=agent)
        else:
            until(lambda: "connected to" in agent.told(), log=agent)


@pytest.fixture(scope="module")
def certified(place: Path) -> Iterator[tuple[Gateway, Path]]:
    """A gateway with a certificate of somebody else's CA."""
    directory = place / "certificates"
    authority(directory, "first")
    files = ["--tls-cert-file", directory / "serving.crt", "--tls-private-key-file", directory / "serving.key"]
    gateway = Gateway(place / "certified", *map(str, files), "--tls-ca-file", str(directory / "ca.crt"))
    gateway.ca = directory / "ca.crt"
    # The administrator's certificate is of the server's own CA; the certificate served is of this one.
    with gateway:
        gateway.announced()
        yield gateway, directory


def authority(directory: Path, name: str) -> None:
    """A CA with a serving certificate, put in place of the one before."""
    made = directory.with_name(f"{directory.name}-{name}")
    made.mkdir(parents=True)
    directory.mkdir(exist_ok=True)
    pki.Authority(made, f"ca {name}").serving("serving", ("127.0.0.1",))
    for file in ("serving.key", "serving.crt", "ca.crt"):
        (directory / f"{file}.new").write_bytes((made / file).read_bytes())
    for file in ("serving.key", "serving.crt", "ca.crt"):
        (directory / f"{file}.new").replace(directory / file)


class Mounting(Agent):
    """An agent that has everything from a mounted directory."""

    def __init__(self, cluster: Cluster, downstream: Embedded, mounted: Path) -> None:
        super().__init__(cluster, downstream)
        self.mounted = mounted

    def command(self) -> list[str]:
        usual = super().command()
        return [*usual[: usual.index("--server")], "--credentials", str(self.mounted), "--strict-verify"]


def test_a_server_with_another_ca_is_believed_when_its_checksum_is_known(
    certified: tuple[Gateway, Path], downstream: Embedded
) -> None:
    gateway, directory = certified
    admin = gateway.administrator()
    cluster: Cluster = gateway.cluster("rotated")
    mounted = downstream.directory / "credentials"
    mounted.mkdir()
    for name, value in (("url", gateway.url), ("token", cluster.token()), ("ca-checksum", gateway.ca_checksum())):
        (mounted / name).write_text(value)
    with Mounting(cluster, downstream, mounted) as agent:
        cluster.until("Ready", "True")
        authority(directory, "second")
        until(lambda: "second" in base64.b64decode(served_issuer(gateway)).decode("latin-1"), log=gateway)
        imported = Imported(cluster, agent)
        imported.lets_in(admin)
        # What stands goes on. Who comes anew meets a CA that nobody has vouched for.
        assert works(admin, imported)
        gateway.kill()
        gateway.start()
        until(lambda: "checksum" in agent.told(), log=agent)
        # What the last life of the server wrote stands until this one has looked.
        until(lambda: cluster.condition("Connected").get("status") != "True", log=gateway)
        (mounted / "ca-checksum").write_text(gateway.ca_checksum())
        cluster.until("Connected", "True")
        until(lambda: works(admin, imported))


def served_issuer(gateway: Gateway) -> str:
    pem = ssl.get_server_certificate((gateway.host, gateway.port))
    return base64.b64encode(ssl.PEM_cert_to_DER_cert(pem)).decode()
