"""Which addresses are connected to for tenants: by kind, spelling and setting; and what was checked is connected to."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.network import outbound, outbound_http
from remuda.kube.network.outbound import AddressInfo, AddressRefused, Policy, PolicyError
from tests.waiting import until

STANDARD = Policy.of()


def info(address: str, port: int = 80) -> AddressInfo:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return (family, socket.SOCK_STREAM, 6, "", (address, port))


class Names:
    """A resolver that answers from a list, one entry each time it is asked."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[AddressInfo]:
        self.asked += 1
        return [info(each, port) for each in self.answers.pop(0)]


def permits(policy: Policy, address: str) -> bool:
    return policy.permits(ipaddress.ip_address(address))


# --- which ------------------------------------------------------------------------------------------------------------------

# fmt: off
REFUSED = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "169.254.0.1", "169.254.169.254", "169.254.170.2", "169.254.170.23",
    "100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "239.255.255.250", "255.255.255.255", "::", "::1",
    "fe80::1", "fe80::1%eth0", "febf::1", "ff02::1", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fe80::a9fe:a9fe",
    "::1%lo", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "64:ff9b:1:a9fe:a9:fe00::", "2002:7f00:1::", "2002:a9fe:a9fe::1",
    "2001:0:7f00:1::", "2001:0:102:304:0:0:8000:fffe", "2001:db8::5efe:7f00:1", "2001:db8::200:5efe:a9fe:a9fe",
]
# fmt: on
# fmt: off
ALLOWED = [
    "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "8.8.8.8", "203.0.113.7", "126.255.255.255", "128.0.0.1",
    "169.253.255.255", "169.255.0.0", "2001:db8::1", "fd12::1", "fc00::1", "::ffff:10.0.0.1", "64:ff9b::8.8.8.8",
    "2002:a00:1::", "fec0::1",
]
# fmt: on


@pytest.mark.parametrize("address", REFUSED)
def test_what_leads_to_the_server_its_link_or_a_metadata_service_is_refused(address: str) -> None:
    assert not permits(STANDARD, address)


@pytest.mark.parametrize("address", ALLOWED)
def test_everything_else_is_allowed_private_networks_too(address: str) -> None:
    assert permits(STANDARD, address)


def hidden(address: IPv4Address) -> list[IPv6Address]:
    number = int(address)
    return [
        IPv6Address(0xFFFF << 32 | number),
        IPv6Address(0xFFFF << 48 | number),
        IPv6Address(0x0064FF9B << 96 | number),
        IPv6Address(0x0064FF9B0001 << 80 | number),
        IPv6Address(0x0064FF9B0001 << 80 | number >> 16 << 64 | (number & 0xFFFF) << 40),
        IPv6Address(0x2002 << 112 | number << 80 | 1),
        IPv6Address(0x20010000 << 96 | 0x08080808 << 64 | number ^ 0xFFFFFFFF),
        IPv6Address(0x20010DB8 << 96 | 0x5EFE << 32 | number),
    ]


@given(st.ip_addresses(v=4))
def test_no_form_of_ipv6_hides_an_address_that_is_refused(address: Any) -> None:
    strict = Policy.of("deny:10.0.0.0/8")
    for policy in (STANDARD, strict):
        if not policy.permits(address):
            assert [each for each in hidden(address) if policy.permits(each)] == []


@given(st.sampled_from(["127.0.0.0/8", "169.254.0.0/16", "10.0.0.0/8"]), st.integers(0, 2**24 - 1))
def test_what_the_setting_allows_is_allowed_in_its_mapped_form_too(network: str, offset: int) -> None:
    found = ipaddress.IPv4Network(network)
    address = found.network_address + offset % found.num_addresses
    assert Policy((*outbound.parsed(f"allow:{network}"),)).permits(IPv6Address(0xFFFF << 32 | int(address)))


def test_addresses_of_this_machine_are_refused_and_are_allowed_one_by_one() -> None:
    own = ipaddress.ip_address("10.1.2.3")
    rules = Policy.of("allow:10.0.0.0/8").rules
    assert not Policy(rules, lambda address: address == own).permits(own)
    assert not Policy(rules, lambda address: address == own).permits(IPv6Address("::ffff:10.1.2.3"))
    assert Policy(rules, lambda address: address == own).permits(ipaddress.ip_address("10.1.2.4"))
    assert Policy(Policy.of("allow:10.1.2.3/32").rules, lambda address: address == own).permits(own)


def test_which_addresses_are_this_machines_is_known() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))
        except OSError:
            pytest.skip("there is no network")
        own = ipaddress.ip_address(probe.getsockname()[0])
    assert outbound.is_this_machine(own) and not STANDARD.permits(own)
    assert not outbound.is_this_machine(ipaddress.ip_address("203.0.113.1"))


@pytest.mark.parametrize(
    ("text", "allowed", "refused"),
    [
        ("allow:127.0.0.0/8", ["127.0.0.1", "::ffff:127.0.0.1"], ["::1", "169.254.169.254"]),
        ("allow:::1/128", ["::1"], ["127.0.0.1"]),
        ("deny:10.0.0.0/8", ["192.168.0.1"], ["10.0.0.1", "::ffff:10.0.0.1", "127.0.0.1"]),
        ("deny:10.0.0.0/8, allow:10.1.0.0/16", ["10.1.0.1"], ["10.2.0.1"]),
        ("allow:10.1.0.0/16,deny:10.1.0.0/16", [], ["10.1.0.1"]),
        ("deny:0.0.0.0/0,deny:::/0,allow:192.0.2.0/24", ["192.0.2.1"], ["8.8.8.8", "2001:db8::1", "10.0.0.1"]),
        # A wide network does not open what is narrower and refused by itself.
        ("allow:0.0.0.0/0", ["8.8.8.8"], ["127.0.0.1", "169.254.169.254", "224.0.0.1"]),
        ("allow:169.254.0.0/16", ["169.254.1.1"], ["169.254.169.254", "169.254.170.2"]),
        ("allow:169.254.169.254/32", ["169.254.169.254"], ["169.254.1.1"]),
        ("allow:169.254.169.254", ["169.254.169.254"], ["169.254.1.1"]),
    ],
)
def test_the_longest_network_decides_and_the_setting_before_the_standard(
    text: str, allowed: list[str], refused: list[str]
) -> None:
    policy = Policy.of(text)
    assert [each for each in allowed if not permits(policy, each)] == []
    assert [each for each in refused if permits(policy, each)] == []


def test_administrators_may_mean_this_machine_but_no_metadata_service() -> None:
    policy = Policy.for_administrators()
    assert [each for each in ("127.0.0.1", "::1", "10.0.0.1") if not permits(policy, each)] == []
    assert [each for each in ("169.254.169.254", "fe80::1", "0.0.0.0", "::ffff:169.254.169.254") if permits(policy, each)] == []
    assert not permits(Policy.for_administrators("deny:127.0.0.0/8"), "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.0.0/8", "10.0.0.0/8 is neither"),
        ("allow:10.0.0.0/8,permit:10.0.0.0/8", "permit:10.0.0.0/8 is neither"),
        ("allow:10.0.0.1/8", "has allow:10.0.0.1/8, which has bits behind its prefix: 10.0.0.0/8 is the network"),
        ("deny:10.0.0.0/33", "has deny:10.0.0.0/33, which is no network"),
        ("allow:example.com", "has allow:example.com, which is no network"),
        ("allow:", "has allow:, which is no network"),
        ("allow:::ffff:10.0.0.0/104", "write an IPv4 network as such"),
        (",".join(["allow:10.0.0.0/8"] * 1001), "at most 1000 networks"),
    ],
)
def test_a_policy_that_can_not_be_read_names_the_part(text: str, why: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.of(text)
    assert why in str(caught.value) == outbound.problem_of(text)


# --- names ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost.",
        "127.1",
        "2130706433",
        "0177.0.0.1",
        "0x7f.1",
        "0x7f000001",
        "[::1]",
        "::1",
        "0",
        "::ffff:7f00:1",
    ],
)
async def test_however_this_machine_is_spelled_it_is_refused(host: str) -> None:
    with pytest.raises(OSError) as caught:
        await outbound.resolved(STANDARD, host, 80)
    assert isinstance(caught.value, AddressRefused | socket.gaierror), "refused, or no name at all"


async def test_a_name_with_one_refused_address_is_refused() -> None:
    with pytest.raises(AddressRefused, match=r"two\.example is refused by policy"):
        await outbound.resolved(STANDARD, "two.example", 80, Names(["192.0.2.1", "127.0.0.1"]))


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[int, list[str]]]:
    came: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer.get_extra_info("sockname")[0])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], came


async def test_a_name_is_looked_up_once_and_connected_to_as_it_was_checked() -> None:
    """The second answer would be refused, and a third is never asked for."""
    async with listening() as (port, came):
        names = Names(["127.0.0.1"], ["127.0.0.2"])
        made = await outbound.connected(Policy.of("allow:127.0.0.1/32"), "rebinding.example", port, names)
        made.close()
        await until(lambda: came)
        assert (names.asked, came) == (1, ["127.0.0.1"])


async def test_the_first_address_that_answers_is_taken() -> None:
    async with listening() as (port, _):
        made = await outbound.connected(Policy.of("allow:127.0.0.0/8"), "x", port, Names(["127.0.0.9", "127.0.0.1"]))
        assert made.getpeername()[0] == "127.0.0.1"
        made.close()


async def test_what_a_proxy_looks_up_is_refused_as_far_as_it_is_known() -> None:
    for host in ("127.0.0.1", "localhost", "169.254.169.254"):
        with pytest.raises(AddressRefused):
            await outbound.check_ahead(STANDARD, host)

    async def unknown(host: str, port: int) -> list[AddressInfo]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    await outbound.check_ahead(STANDARD, "only-the-proxy-knows.example", lookup=unknown)


# --- HTTP -------------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def site() -> AsyncIterator[int]:
    async def moved(request: web.Request) -> web.Response:
        raise web.HTTPFound(f"http://127.0.0.2:{request.url.port}/here")

    async def here(request: web.Request) -> web.Response:
        return web.Response(text="a secret of this machine")

    app = web.Application()
    app.add_routes([web.get("/moved", moved), web.get("/here", here)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def get(url: str, policy: Policy, lookup: outbound.Lookup = outbound.looked_up) -> str:
    connector = outbound_http.connector(lambda: policy, lookup=lookup, use_dns_cache=False)
    async with aiohttp.ClientSession(connector=connector) as http, http.get(url) as answer:
        return await answer.text()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]"])
async def test_http_to_this_machine_is_refused_by_name_and_by_address(host: str) -> None:
    async with site() as port:
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await get(f"http://{host}:{port}/here", STANDARD)
        assert outbound.is_refusal(caught.value)


@pytest.mark.parametrize("host", ["localhost.", "127.1", "2130706433", "0177.0.0.1", "0x7f000001"])
async def test_no_spelling_that_a_resolver_may_know_gets_to_this_machine(host: str) -> None:
    async with site() as port:
        with pytest.raises(aiohttp.ClientError):
            await get(f"http://{host}:{port}/here", STANDARD)


async def test_a_redirect_is_checked_again() -> None:
    async with site() as port:
        only = Policy.of("allow:127.0.0.1/32")
        assert await get(f"http://127.0.0.1:{port}/here", only)
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await get(f"http://127.0.0.1:{port}/moved", only)
        assert outbound.is_refusal(caught.value)


async def test_http_connects_to_the_address_that_was_checked() -> None:
    async with site() as port:
        names = Names(["127.0.0.1"], ["127.0.0.2"])
        assert await get(f"http://rebinding.example:{port}/here", Policy.of("allow:127.0.0.1/32"), names)
        assert names.asked == 1
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await get(f"http://rebinding.example:{port}/here", Policy.of("allow:127.0.0.1/32"), names)
        assert outbound.is_refusal(caught.value)


async def test_a_policy_that_is_narrowed_counts_for_the_next_connection() -> None:
    current = [Policy.of("allow:127.0.0.0/8")]
    async with site() as port:
        connector = outbound_http.connector(lambda: current[0], force_close=True)
        async with aiohttp.ClientSession(connector=connector) as http:
            async with http.get(f"http://localhost:{port}/here") as answer:
                assert answer.status == 200
            current[0] = STANDARD
            with pytest.raises(aiohttp.ClientConnectorError) as caught:
                await http.get(f"http://localhost:{port}/here")
        assert outbound.is_refusal(caught.value)


# --- words ------------------------------------------------------------------------------------------------------------------


def test_a_tenant_is_told_one_of_two_sentences() -> None:
    errors = [
        ConnectionRefusedError(111, "Connection refused"),
        TimeoutError(),
        socket.gaierror(-2, "Name unknown"),
        ValueError("x"),
    ]
    assert {outbound.told(error, "x") for error in errors} == {"x can't be reached"}
    wrapped = RuntimeError("aborted")
    wrapped.__cause__ = AddressRefused("x")
    assert {outbound.told(error, "x") for error in (AddressRefused("x"), wrapped)} == {"x is refused by policy"}
