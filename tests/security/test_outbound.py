"""Requests that the server makes for tenants: each kind is refused by default, allowed by the setting, and told briefly."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from aiohttp import web

import remuda
from remuda.api.management_cattle_io import SETTINGS
from remuda.apiserver.webhook_client import CallError, WebhookClient, WebhookEndpoint
from remuda.capi.clustercache import HttpsConnector
from remuda.client.download import FetchError
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.errors import ApiError
from remuda.kube.network import outbound
from remuda.kube.network.outbound import Policy
from remuda.kube.objects import Key, dig
from remuda.machines.driver import ASIDE, DriverContext, DriverError, Machine
from remuda.machines.drivers.amazonec2.client import Ec2, _session
from remuda.machines.drivers.amazonec2.driver import AmazonEC2
from remuda.machines.drivers.digitalocean.client import ADDRESS_VARIABLE, Api
from remuda.machines.drivers.generic import Generic
from remuda.machines.errors import Reason
from remuda.machines.machine_access import MachineAccess, shell
from remuda.machines.machineprovision.well_known import environment_name
from remuda.machines.nodedrivers import driver_downloads
from remuda.machines.options import Options
from remuda.machines.provisioner import external_driver
from remuda.machines.runner.confinement import PythonPaths, environment
from remuda.machines.runner.job_logs import Output
from remuda.provisioning.etcd.s3 import copies
from remuda.provisioning.etcd.s3.answers import S3Error
from remuda.provisioning.etcd.s3.bucket import Bucket
from remuda.provisioning.etcd.s3.place import Place
from remuda.provisioning.etcd.s3.signature import Keys
from remuda.provisioning.releases import release_data
from tests.integration.gateway.running_gateway import standing
from tests.real.ports import free_port
from tests.unit.machines.machineprovision.driver_machines import CREDENTIAL, papers
from tests.unit.provisioning.rke_machines import FLEET

STANDARD, LOOPBACK = Policy.of(), Policy.of("allow:127.0.0.0/8")
METADATA = "169.254.169.254"
KEY = asyncssh.generate_private_key("ssh-ed25519").export_private_key("openssh")


class Listener:
    """A port of this machine. `said` is what it answers before it hangs up, `came` how many have come."""

    def __init__(self, said: bytes = b"") -> None:
        self.said = said
        self.came = 0
        self.port = 0

    async def __aenter__(self) -> Listener:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        with contextlib.suppress(OSError):
            writer.write(self.said)
            await writer.drain()
            if self.said.startswith(b"HTTP"):
                await reader.read(1 << 16)
            writer.close()


# --- each kind: what a tenant is told when the server connects there ------------------------------------------------------------

Kind = Callable[[str, int, Policy, Path], Awaitable[object]]


async def generic(host: str, port: int, policy: Policy, place: Path) -> None:
    (place / "key").write_bytes(KEY)
    given = {"ipAddress": host, "sshPort": port, "sshKey": str(place / "key")}
    machine = Machine("m", Options.read("generic", Generic.flags, given), place)
    await Generic(DriverContext(outbound=policy)).precreate(machine)


async def amazonec2(host: str, port: int, policy: Policy, place: Path) -> None:
    given = {"accessKey": "a", "secretKey": "b", "region": "us-east-1", "endpoint": f"http://{host}:{port}", "retries": 0}
    ec2 = Ec2(Options.read("amazonec2", AmazonEC2.flags, given), DriverContext(outbound=policy))
    try:
        await ec2("describe_regions", "asking")
    finally:
        ec2.close()


async def digitalocean(host: str, port: int, policy: Policy, place: Path) -> None:
    api = Api("token", DriverContext(environ={ADDRESS_VARIABLE: f"http://{host}:{port}"}, outbound=policy), tries=1)
    try:
        await api.get("/v2/account", "asking")
    finally:
        await api.close()


async def machine_shell(host: str, port: int, policy: Policy, place: Path) -> None:
    async def pin(line: str) -> None: ...

    access = MachineAccess("m", "generic", "root", port, host, "", private=KEY)
    async with shell(access, pin, SYSTEM_CLOCK, policy, "id"):
        raise AssertionError("nobody is there")


async def _connected(cluster: dict[str, str], policy: Policy) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    connector = HttpsConnector(policy=lambda: policy)
    client = await connector.connect(Key("fleet-default", "c"), json.dumps(config).encode())
    try:
        await client.raw("GET", "/version")
    finally:
        await client.close()


async def kubeconfig(host: str, port: int, policy: Policy, place: Path) -> None:
    await _connected({"server": f"https://{host}:{port}"}, policy)


async def kubeconfigs_proxy(host: str, port: int, policy: Policy, place: Path) -> None:
    await _connected({"server": "https://192.0.2.1:6443", "proxy-url": f"http://{host}:{port}"}, policy)


async def snapshots(host: str, port: int, policy: Policy, place: Path) -> None:
    at = Place("backups", endpoint=f"{host}:{port}", skip_verify=True, insecure=True)
    async with Bucket(at, Keys("a", "b"), SYSTEM_CLOCK, Rng(), policy=policy, tries=1) as bucket:
        await copies.listed(bucket)


KINDS: dict[str, Kind] = {
    each.__name__: each for each in (generic, amazonec2, digitalocean, machine_shell, kubeconfig, kubeconfigs_proxy, snapshots)
}


async def told(kind: Kind, host: str, port: int, policy: Policy, place: Path) -> str:
    with pytest.raises((DriverError, ApiError, S3Error)) as caught:
        await kind(host, port, policy, place)
    return str(getattr(caught.value, "message", caught.value))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_nothing_of_a_tenants_leads_to_the_server_itself(kind: Kind, host: str, tmp_path: Path) -> None:
    async with Listener() as inside:
        said = await told(kind, host, inside.port, STANDARD, tmp_path)
        assert said.endswith(" is refused by policy")
        assert inside.came == 0


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_nothing_of_a_tenants_leads_to_a_metadata_service(kind: Kind, tmp_path: Path) -> None:
    assert (await told(kind, METADATA, 80, LOOPBACK, tmp_path)).endswith(" is refused by policy")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_what_the_setting_allows_is_connected_to(kind: Kind, tmp_path: Path) -> None:
    async with Listener() as inside:
        assert (await told(kind, "127.0.0.1", inside.port, LOOPBACK, tmp_path)).endswith(" can't be reached")
        assert inside.came > 0


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_a_tenant_does_not_learn_which_ports_are_open(kind: Kind, tmp_path: Path) -> None:
    closed = free_port()
    said = {re.sub(r"\d{4,5}", "PORT", await told(kind, "127.0.0.1", closed, LOOPBACK, tmp_path))}
    for answer in (b"", b"220 mail.example ESMTP\r\n"):
        async with Listener(answer) as inside:
            said.add(re.sub(r"\d{4,5}", "PORT", await told(kind, "127.0.0.1", inside.port, LOOPBACK, tmp_path)))
    assert len(said) == 1, said


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (amazonec2, "200 OK"),
        (amazonec2, "302 Found"),
        (amazonec2, "404 Not Found"),
        (amazonec2, "500 Internal Server Error"),
        (snapshots, "200 OK"),
        (snapshots, "302 Found"),
        (snapshots, "403 Forbidden"),
        (snapshots, "404 Not Found"),
        (snapshots, "500 Internal Server Error"),
        # The address is the administrator's, and another status DigitalOcean's own answer.
        (digitalocean, "200 OK"),
    ],
)
async def test_another_web_server_is_not_told_apart(kind: Kind, status: str, tmp_path: Path) -> None:
    body = b"the inside of a page"
    answer = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    async with Listener(answer) as inside:
        said = await told(kind, "127.0.0.1", inside.port, LOOPBACK, tmp_path)
        assert said.endswith(" can't be reached") and "page" not in said


async def test_boto3_connects_to_the_address_that_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = socket.getaddrinfo, list[str]()

    def rebinding(host: Any, port: Any, *args: Any, **named: Any) -> Any:
        if host != "rebinding.example":
            return real(host, port, *args, **named)
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "127.0.0.2", port, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    only = Policy.of("allow:127.0.0.1/32")
    async with Listener() as inside:
        assert (await told(amazonec2, "rebinding.example", inside.port, only, tmp_path)).endswith("EC2 can't be reached")
        assert (inside.came, len(asked)) == (1, 1)
        assert (await told(amazonec2, "rebinding.example", inside.port, only, tmp_path)).endswith("EC2 is refused by policy")
        assert inside.came == 1


def test_a_tenant_does_not_borrow_the_role_of_the_servers_machine() -> None:
    def ways(policy: Policy) -> set[str]:
        providers = _session(policy)._session.get_component("credential_provider").providers
        return {each.METHOD for each in providers} & {"iam-role", "container-role"}

    assert ways(STANDARD) == set()
    assert ways(Policy.of(f"allow:{METADATA}/32")) == {"iam-role", "container-role"}


# --- foreign drivers: before they run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "words", "environ", "fine"),
    [
        ("openstack", ["--openstack-auth-url=http://127.0.0.1:5000/v3"], {}, False),
        ("openstack", ["--openstack-auth-url", "http://localhost/v3", "m"], {}, False),
        ("openstack", [], {"OS_AUTH_URL": f"http://{METADATA}/latest"}, False),
        ("vmwarevsphere", [], {"VSPHERE_VCENTER": "127.0.0.1:443"}, False),
        ("vmwarevsphere", ["--vmwarevsphere-vcenter=[::1]:443"], {}, False),
        ("generic2", ["--generic2-ip-address=::ffff:127.0.0.1"], {}, False),
        ("some", ["--some-thing=127.0.0.1"], {}, False),
        ("none", ["--url=tcp://127.0.0.1:2376"], {}, False),
        ("openstack", ["--openstack-auth-url=http://10.0.0.5:5000/v3", "--openstack-flavor=127"], {}, True),
        ("openstack", ["--openstack-auth-url=https://nowhere.invalid/v3"], {"HTTP_PROXY": "http://127.0.0.1:1"}, True),
    ],
)
async def test_a_foreign_driver_does_not_run_with_a_refused_host(
    driver: str, words: list[str], environ: dict[str, str], fine: bool
) -> None:
    checking = external_driver.check(STANDARD, driver, ["create", f"--driver={driver}", *words], environ)
    if fine:
        await checking
        return
    with pytest.raises(DriverError, match=r"is refused by policy$") as caught:
        await checking
    assert caught.value.reason is Reason.INVALID


@pytest.mark.parametrize(
    "line",
    [
        'Error: Post "https://10.0.0.5:443/sdk": dial tcp 10.0.0.5:443: connect: connection refused',
        'Error: Post "https://10.0.0.5:443/sdk": dial tcp 10.0.0.5:443: i/o timeout',
        'Error: Post "https://10.0.0.5:443/sdk": http: server gave HTTP response to HTTPS client',
        'Error: Post "https://10.0.0.5:443/sdk": tls: first record does not look like a TLS handshake',
        'Error: Post "https://10.0.0.5:443/sdk": x509: certificate signed by unknown authority',
        'Error: Post "https://10.0.0.5:443/sdk": read: connection reset by peer',
    ],
)
def test_a_foreign_driver_does_not_say_why_a_connection_failed(line: str) -> None:
    assert re.sub(r": (http|read)(?=: can't)", "", external_driver.plainly(line)) == (
        'Error: Post "https://10.0.0.5:443/sdk": can\'t be reached'
    )
    assert external_driver.plainly("Error: no such flavor") == "Error: no such flavor"


# --- Jobs ---------------------------------------------------------------------------------------------------------------------


async def test_a_job_is_handed_the_policy_and_no_credential_changes_it() -> None:
    async with papers(local=False) as made:
        await made.world.setting("outbound-policy", "deny:10.0.0.0/8")
        await made.credential(token="x")
        await made.cluster(CREDENTIAL)
        await made.machine(credential=CREDENTIAL)
        await made.world.settle(5)
        secret = await made.world.get(SECRETS, environment_name("m1"), FLEET)
        assert base64.b64decode(dig(secret, "data", outbound.VARIABLE)).decode() == "deny:10.0.0.0/8"
    given = {outbound.VARIABLE: "deny:10.0.0.0/8", "REMUDA_OTHER": "x"}
    found = environment(PythonPaths(), "/job", given, {outbound.VARIABLE: "allow:0.0.0.0/0"})
    assert found[outbound.VARIABLE] == "deny:10.0.0.0/8" and "REMUDA_OTHER" not in found


def provision(place: Path, port: int, **environ: str) -> tuple[int, str]:
    (place / "key").write_bytes(KEY)
    words = ["--generic-ip-address=127.0.0.1", f"--generic-ssh-port={port}", f"--generic-ssh-key={place / 'key'}", "m-1"]
    command = [sys.executable, "-m", "remuda", "provision", "-s", str(place / "s"), "create", "--driver=generic", *words]
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


def test_a_jobs_log_tells_a_tenant_one_of_two_sentences_and_the_server_the_rest(tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    port = free_port()
    refused = provision(tmp_path / "a", port)
    unreached = provision(tmp_path / "b", port, **{outbound.VARIABLE: "allow:127.0.0.0/8"})
    for (code, said), last, detail in (
        (refused, "Invalid: 127.0.0.1 is refused by policy", "127.0.0.1 (127.0.0.1) is refused by policy"),
        (unreached, f"Unavailable: 127.0.0.1:{port} can't be reached", "Connect call failed"),
    ):
        aside: list[str] = []
        output = Output(aside=aside.append)
        output.feed(said.encode())
        assert (code, output.last(4096).splitlines()[-1]) == (3, last)
        assert not any(word in output.text().lower() for word in ("connection refused", "errno", "timed out", "connect call"))
        assert any(detail in line for line in aside), (aside, said)


def test_others_words_in_a_job_are_never_for_the_servers_log(capfd: pytest.CaptureFixture[str]) -> None:
    from remuda.machines.provisioner.program import _say

    _say(f"{ASIDE}{ASIDE}all is well")
    assert capfd.readouterr().err == "all is well\n"


# --- what administrators name -------------------------------------------------------------------------------------------------


async def test_a_webhook_is_on_this_machine_but_at_no_metadata_service() -> None:
    async with Listener() as inside:
        client = WebhookClient(SYSTEM_CLOCK)
        try:
            review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
            for host in (METADATA, f"[::ffff:{METADATA}]", "[fe80::1]"):
                with pytest.raises(CallError, match=r"refused by policy$"):
                    await client.post(WebhookEndpoint.of({"url": f"https://{host}/hook"}), review, 5)
            here = WebhookEndpoint.of({"url": f"https://127.0.0.1:{inside.port}/hook"})
            with pytest.raises(CallError) as caught:
                await client.post(here, review, 5)
            assert inside.came == 1 and "policy" not in str(caught.value)
            client.policy = lambda: Policy.for_administrators("deny:127.0.0.0/8")
            with pytest.raises(CallError, match=r"refused by policy$"):
                await client.post(here, review, 5)
            assert inside.came == 1
        finally:
            await client.close()


@contextlib.asynccontextmanager
async def moving() -> AsyncIterator[str]:
    async def moved(request: web.Request) -> web.Response:
        raise web.HTTPFound(f"http://{METADATA}/latest/meta-data/")

    app = web.Application()
    app.add_routes([web.get("/", moved)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("fetcher", [driver_downloads.fetcher, release_data.fetcher], ids=["node driver", "release data"])
async def test_no_redirect_of_a_download_leads_to_a_metadata_service(fetcher: Any) -> None:
    async with moving() as url:
        for policy in (Policy.for_administrators, lambda: Policy.for_administrators("deny:127.0.0.0/8")):
            with pytest.raises(FetchError, match=r"is refused by policy$"):
                await fetcher(SYSTEM_CLOCK, {}, policy)(url)
    # Behind a proxy, which would look the name up itself.
    with pytest.raises(FetchError, match=r"is refused by policy$"):
        await fetcher(SYSTEM_CLOCK, {"HTTP_PROXY": "http://127.0.0.1:1"})(f"http://{METADATA}/")


# --- the setting --------------------------------------------------------------------------------------------------------------


async def test_the_setting_counts_at_once_everywhere_and_a_bad_one_is_refused_by_name() -> None:
    async with standing() as found:
        gateway, webhooks = found.gateway, found.server.webhooks
        assert (gateway.outbound(), webhooks.policy()) == (STANDARD, Policy.for_administrators())
        await found.setting("outbound-policy", "deny:10.0.0.0/8")
        with pytest.raises(ApiError, match=re.escape("outbound-policy has deny:10.0.0.1/8, which has bits behind its prefix")):
            await found.client.patch(SETTINGS, "outbound-policy", {"value": "allow:10.0.0.0/8,deny:10.0.0.1/8"})
        assert gateway.outbound() == Policy.of("deny:10.0.0.0/8")
        assert webhooks.policy() == Policy.for_administrators("deny:10.0.0.0/8")


# --- no other place -----------------------------------------------------------------------------------------------------------

CONNECTS = re.compile(
    r"aiohttp\.(?:ClientSession|TCPConnector|UnixConnector)\(|\bopen_connection\(|\bcreate_connection\(|\bsock_connect\(|asyncssh\.connect\("
    r'|import_module\("boto3"\)|HTTPS?Connection\(|build_opener\(|HttpsClient\('
)
# Every place that connects somewhere, and whose the address is. A new one belongs under the policy, or says here why not.
PLACES = {
    "kube/network/outbound.py": "the policy itself",
    "kube/network/outbound_http.py": "the policy itself",
    "client/connection.py": "under the policy where a tenant names the server (capi/clustercache)",
    "capi/clustercache/cache.py": "under the policy",
    "client/download.py": "under the policy for downloads and release data; a cluster agent fetches from its own server",
    "apiserver/webhook_client.py": "under the administrators' policy",
    "machines/ssh.py": "under the policy",
    "machines/drivers/amazonec2/client.py": "under the policy",
    "machines/drivers/digitalocean/client.py": "under the policy",
    "machines/drivers/container/engine.py": "a socket of this machine that the server's environment names",
    "provisioning/etcd/s3/bucket.py": "under the policy where the server connects; a host has none",
    "machines/provisioner/program.py": "the server that made the Job",
    "app/attached_gateway.py": "the Kubernetes of the gateway's own kubeconfig",
    "gateway/proxy/connection_pool.py": "the Kubernetes that the gateway stands before",
    "gateway/proxy/tunnel_downstreams.py": "through a cluster agent's tunnel",
    "tunnel/client.py": "a cluster agent, to its server and to its own API",
    "apiserver/storage/etcd/grpc.py": "etcd, by the command line",
    "lab/distro/supervisor_client.py": "a host, to its cluster",
    "lab/distro/node.py": "a host, to its cluster",
    "agent/http_client.py": "a host",
    "hosts/curl.py": "a host",
    "client/oneshot.py": "a user's command",
}


def test_every_place_that_connects_is_listed_with_the_author_of_the_address() -> None:
    home = Path(remuda.__file__).parent
    found = {str(path.relative_to(home)) for path in home.rglob("*.py") if CONNECTS.search(path.read_text())}
    commands = {each for each in found if each.startswith("cli/")}
    assert found - commands == set(PLACES)


def test_tls_is_verified_by_the_name_and_not_by_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 is given an address to connect to, and still asks for the certificate of the name."""
    from remuda.machines.drivers.amazonec2 import client as outbound_connections

    class Connection:
        proxy, port, _dns_host = None, 443, "ec2.example"

    seen: list[str] = []
    monkeypatch.setattr(outbound_connections, "_looked_up", lambda host, port: [(2, 1, 6, "", ("192.0.2.1", 443))])
    connection = Connection()
    outbound_connections._connected(connection, STANDARD, lambda: seen.append(connection._dns_host))
    assert (seen, connection._dns_host) == (["192.0.2.1"], "ec2.example")
