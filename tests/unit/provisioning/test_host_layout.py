"""Where things are on a host, and what a host may say of it."""

from __future__ import annotations

import pytest

from remuda.provisioning import host_layout
from remuda.provisioning.host_layout import PLAIN, Layout, LayoutError


def test_an_ordinary_host_has_the_originals_paths() -> None:
    assert Layout("/", "localhost") == PLAIN
    assert PLAIN.is_plain
    assert PLAIN.path("/etc/rancher/agent/registries.yaml") == "/etc/rancher/agent/registries.yaml"


def test_a_host_in_a_directory_has_everything_below_it() -> None:
    host = Layout("/srv/hosts/a", "127.4.5.6")
    assert host.path("/etc/rancher/rke2") == "/srv/hosts/a/etc/rancher/rke2"
    assert host.path("/etc/../../../x") == "/srv/hosts/a/x"
    assert host.path("relative") == "/srv/hosts/a/relative"


def test_a_path_that_is_below_the_root_already_stays() -> None:
    host = Layout("/srv/hosts/a", "127.4.5.6")
    assert host.below("/srv/hosts/a/etc") == host.below("/etc") == "/srv/hosts/a/etc"
    assert host.below("/srv/hosts/a/../b") == "/srv/hosts/a/srv/hosts/b"
    assert host.below("/srv/hosts/ab") == "/srv/hosts/a/srv/hosts/ab"
    assert PLAIN.below("/certs/../x") == "/certs/../x"


@pytest.mark.parametrize(("stack", "host"), [("", "localhost"), ("dual", "localhost"), ("ipv4", "127.0.0.1"), ("ipv6", "[::1]")])
def test_the_stack_chooses_the_loopback_of_an_ordinary_host(stack: str, host: str) -> None:
    assert PLAIN.loopback_for(stack) == host
    assert Layout("/srv/a", "127.1.1.1").loopback_for(stack) == "127.1.1.1"


def test_what_is_written_is_read_back() -> None:
    host = Layout("/srv/a", "[::1]")
    assert host_layout.parse(host_layout.text_of(host)) == host
    assert host_layout.of_annotations({host_layout.ANNOTATION: host_layout.text_of(host)}) == host
    assert host_layout.of_annotations({}) == PLAIN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"root":7}',
        '{"root":"relative"}',
        '{"root":"/a/../b"}',
        '{"root":"//a"}',
        '{"root":"/a/"}',
        '{"root":"/a\\nb"}',
        '{"loopback":"10.0.0.1"}',
        '{"loopback":"::1"}',
        '{"loopback":"example.org"}',
        '{"loopback":"127.0.0.1:80/x"}',
    ],
)
def test_a_host_can_not_say_just_anything(text: str) -> None:
    with pytest.raises(LayoutError):
        host_layout.parse(text)
