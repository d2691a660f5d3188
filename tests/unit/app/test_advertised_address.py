"""The address that a server tells the others."""

from __future__ import annotations

import pytest

from remuda.app.advertised_address import advertised, checked


def found(url: str) -> str:
    return {"https://etcd:2379": "10.1.1.1", "https://six": "fd00::1"}.get(url, "")


@pytest.mark.parametrize(
    ("configured", "host", "shared", "expected"),
    [
        ("", "10.0.0.1", "https://etcd:2379", "10.0.0.1:6443"),
        ("", "0.0.0.0", "https://etcd:2379", "10.1.1.1:6443"),
        ("", "::", "https://six", "[fd00::1]:6443"),
        ("", "", "https://unknown", "127.0.0.1:6443"),
        ("server-1", "0.0.0.0", "https://etcd:2379", "server-1:6443"),
        ("server-1:443", "10.0.0.1", "https://etcd:2379", "server-1:443"),
        ("fd00::2", "0.0.0.0", "", "[fd00::2]:6443"),
        ("[fd00::2]", "0.0.0.0", "", "[fd00::2]:6443"),
        ("[fd00::2]:443", "0.0.0.0", "", "[fd00::2]:443"),
    ],
)
def test_the_address(configured: str, host: str, shared: str, expected: str) -> None:
    assert advertised(configured, host, 6443, shared, found) == expected


@pytest.mark.parametrize("text", ["https://a", "a b", "a:b", "a:0", "a:70000", "user@a", ":443", "[", "a/b"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError):
        checked(text, 6443)
