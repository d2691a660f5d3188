"""Which fields say where a program connects."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.network.outbound import names_host, says_where


@pytest.mark.parametrize(
    "name",
    [
        "url",
        "authUrl",
        "apiURL",
        "xmlrpcurl",
        "--openstack-auth-url",
        "OS_AUTH_URL",
        "baseUri",
        "endpoint",
        "apiEndpoints",
        "VSPHERE_VCENTER",
        "apiHost",
        "apihost",
        "hostname",
        "nfsServers",
        "ipAddress",
        "addresses",
        "nodeIp",
        "ips",
        "api",
        "apiDomain",
        "httpsProxy",
    ],
)
def test_a_name_of_a_host_is_told_by_its_last_word(name: str) -> None:
    assert names_host(name) and says_where(name, "x") and not says_where(name, "") and not says_where(name, None)


@pytest.mark.parametrize(
    "name", ["", "zip", "apiKey", "endpointType", "hostsystem", "serverGroup", "sshUser", "ipv6", "size", "-"]
)
def test_another_name_is_none(name: str) -> None:
    assert not names_host(name) and not says_where(name, "x")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("size", "https://thief.example.com", True),
        ("size", " HTTPS://thief.example.com", True),
        ("things", ["a", "tcp://thief.example.com:1"], True),
        ("tags", "see,https://docs.example.com", False),
        ("userdata", "#cloud-config\nruncmd: [curl https://get.example.com]", False),
        ("hosts", [], False),
        ("hosts", ["a.example.com"], True),
        ("hosts", [""], False),
        ("region", "eu-west-1", False),
        ("region", "x.thief.example.com/", True),
        ("region", "x@thief.example.com", True),
        ("location", "West Europe", False),
        ("location", "westeurope", False),
        ("insecure", True, True),
        ("insecure", False, False),
        ("insecureTransport", True, True),
        ("tlsInsecureSkipVerify", True, True),
        ("cacert", "/ca.pem", True),
        ("usePrivateIp", True, False),
        ("vcenterPort", 443, False),
    ],
)
def test_a_value_may_say_it_too(name: str, value: Any, says: bool) -> None:
    assert says_where(name, value) is says
