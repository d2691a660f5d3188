"""What an agent can be told, and what is refused with a sentence that does not repeat a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tunnel.clusteragent.connections import AllowedAddress, AllowList
from remuda.tunnel.clusteragent.settings import AgentOptions, Mounted, Settings, SettingsError

TOKEN = "bcdfghjklmnpqrst"
SUM = "ab" * 32


def test_a_mounted_secret_and_the_manifests_environment(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://remuda.example.com/\n")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    environ = {"CATTLE_SERVER": "https://ignored", "CATTLE_CA_CHECKSUM": SUM.upper(), "STRICT_VERIFY": "true"}
    assert Mounted(tmp_path, environ).read() == Settings("https://remuda.example.com", TOKEN, SUM, True)
    (tmp_path / "ca-checksum").write_text("cd" * 32)
    assert Mounted(tmp_path, environ).read().ca_checksum == "cd" * 32


def test_the_environment_knows_the_server_where_the_secret_does_not(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    found = Mounted(tmp_path, {"CATTLE_SERVER": "https://remuda.example.com:8443"}).read()
    assert found == Settings("https://remuda.example.com:8443", TOKEN)


def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    given = AgentOptions("https://x", token_file=path)
    assert given.read().token == TOKEN
    path.write_text("another")
    assert given.read().token == "another"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (AgentOptions("http://remuda.example.com", TOKEN), "does not begin with https"),
        (AgentOptions("remuda.example.com", TOKEN), "is not the URL of a server"),
        (AgentOptions("https://", TOKEN), "is not the URL of a server"),
        (AgentOptions("https://user@x", TOKEN), "is not the URL of a server"),
        (AgentOptions("https://x:99999", TOKEN), "is not the URL of a server"),
        (AgentOptions("https://x/?a=b", TOKEN), "is not the URL of a server"),
        (AgentOptions("https://x", ""), "no registration token"),
        (AgentOptions("https://x", f"{TOKEN}\r\nEvil: 1"), "the registration token has invalid characters"),
        (AgentOptions("https://x", TOKEN, ca_checksum="12"), "not a SHA-256"),
        (AgentOptions("https://x", TOKEN, strict=True), "strict verification needs the checksum"),
    ],
)
def test_what_cannot_be_used(given: AgentOptions, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint) as refused:
        given.read()
    assert TOKEN not in str(refused.value)


def test_a_token_is_in_no_representation() -> None:
    assert TOKEN not in repr(AgentOptions("https://x", TOKEN)) + repr(AgentOptions("https://x", TOKEN).read())


def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()
    with pytest.raises(SettingsError, match="can't be read"):
        Mounted(tmp_path, {"CATTLE_SERVER": "https://x"}).read()


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.43.0.1:443", True),
        ("10.43.0.1:8443", False),
        ("10.43.0.2:443", False),
        ("[::ffff:10.43.0.1]:443", True),
        ("169.254.169.254:80", False),
        ("kubernetes.default.svc:443", False),
        ("10.43.0.1", False),
        (":443", False),
        ("10.43.0.1:", False),
        ("", False),
    ],
)
def test_the_api_alone_may_be_dialled(address: str, allowed: bool) -> None:
    assert AllowList("10.43.0.1:443")("tcp", address) is allowed


@pytest.mark.parametrize("network", ["unix", "npipe", "udp", "c-other::tcp", ""])
def test_by_tcp_alone(network: str) -> None:
    assert not AllowList("10.43.0.1:443", [AllowedAddress.parse("*:*")])(network, "10.43.0.1:443")


@pytest.mark.parametrize(
    ("place", "address", "allowed"),
    [
        ("*:*", "anything:1", True),
        ("*:443", "anything:443", True),
        ("*:443", "anything:444", False),
        ("10.0.0.0/8:*", "10.9.9.9:22", True),
        ("10.0.0.0/8:*", "11.9.9.9:22", False),
        ("10.0.0.0/8:*", "10.evil.example.com:22", False),
        ("[fd00::/8]:443", "[fd12::1]:443", True),
        ("[fd00::1]:443", "[FD00:0::1]:443", True),
        ("Registry.internal:5000", "registry.INTERNAL.:5000", True),
        ("registry.internal:5000", "evil.registry.internal:5000", False),
    ],
)
def test_what_else_may_be_dialled(place: str, address: str, allowed: bool) -> None:
    assert AllowList("10.43.0.1:443", [AllowedAddress.parse(place)])("tcp", address) is allowed


@pytest.mark.parametrize("text", ["", "host", "host:0", "host:70000", "host:x", "::1:443", "10.0.0.0/99:443", ":1"])
def test_places_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        AllowedAddress.parse(text)
