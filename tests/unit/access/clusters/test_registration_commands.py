"""The commands that register clusters and nodes, byte for byte."""

from __future__ import annotations

import hashlib
import re

import pytest

from remuda.access.clusters.clusterregistrationtoken import FIELDS, IMPORTING, JOINING, commands, revealed
from remuda.access.clusters.server_settings import ca_checksum

URL, ID = "https://remuda.test", "c-m-bcdfg245"
MANIFEST = "https://remuda.test/v3/import/{token}_c-m-bcdfg245.yaml"
WINDOWS = "-o install.ps1; Set-ExecutionPolicy Bypass -Scope Process -Force; ./install.ps1"


def test_without_variables_and_without_a_ca() -> None:
    found = commands(URL, "", ID)
    assert set(found) == set(FIELDS)
    assert found["manifestUrl"] == MANIFEST
    assert found["command"] == f"kubectl apply -f {MANIFEST}"
    assert found["insecureCommand"] == f"curl --insecure -sfL {MANIFEST} | kubectl apply -f -"
    assert found["nodeCommand"] == (
        " curl -fL https://remuda.test/system-agent-install.sh | sudo  sh -s - --server https://remuda.test "
        "--label 'cattle.io/os=linux' --token {token}"
    )
    assert found["insecureNodeCommand"] == found["nodeCommand"].replace("curl -fL", "curl --insecure -fL")
    assert found["pinnedNodeCommand"] == found["nodeCommand"] and found["pinnedCommand"] == found["command"]
    assert found["windowsNodeCommand"] == (
        f" curl.exe -fL https://remuda.test/wins-agent-install.ps1 {WINDOWS} -Server https://remuda.test "
        "-Label 'cattle.io/os=windows' -Token {token} -Worker"
    )
    assert found["insecureWindowsNodeCommand"] == found["windowsNodeCommand"].replace("curl.exe -fL", "curl.exe --insecure -fL")


def test_with_variables_and_a_ca() -> None:
    variables = [{"name": "HTTP_PROXY", "value": "http://proxy:3128"}, {"name": "NO_PROXY", "value": "10.0.0.0/8"}]
    found = commands(URL, "abc123", ID, variables)
    env = 'HTTP_PROXY="http://proxy:3128" NO_PROXY="10.0.0.0/8"'
    assert found["nodeCommand"] == (
        f"{env} curl -fL https://remuda.test/system-agent-install.sh | sudo {env} sh -s - --server https://remuda.test "
        "--label 'cattle.io/os=linux' --token {token} --ca-checksum abc123"
    )
    fetch = 'ca=$(mktemp) && curl -fsSk -o "$ca" https://remuda.test/cacerts && echo "abc123  $ca" | {} -c - >&2 && '
    assert found["pinnedNodeCommand"] == (
        f"(export {env}; {fetch.format('sha256sum')}"
        'curl -fsSL --cacert "$ca" https://remuda.test/system-agent-install.sh || echo exit 1; rm -f "$ca") | '
        f"sudo {env} sh -s - --server https://remuda.test --label 'cattle.io/os=linux' --token {{token}} --ca-checksum abc123"
    )
    assert found["pinnedCommand"] == (
        f"({fetch.format('$(command -v shasum || command -v sha256sum)')}"
        f'curl -fsSL --cacert "$ca" {MANIFEST}; rm -f "$ca") | kubectl apply -f -'
    )
    assert found["windowsNodeCommand"] == (
        '$env:HTTP_PROXY="http://proxy:3128"; $env:NO_PROXY="10.0.0.0/8"; '
        f"curl.exe -fL https://remuda.test/wins-agent-install.ps1 {WINDOWS} -Server https://remuda.test "
        "-Label 'cattle.io/os=windows' -Token {token} -Worker -CaChecksum abc123"
    )
    assert found["command"] == f"kubectl apply -f {MANIFEST}"


@pytest.mark.parametrize("field", ["pinnedNodeCommand", "pinnedCommand"])
def test_only_the_ca_is_fetched_unverified_and_nothing_runs_before_its_checksum_is_right(field: str) -> None:
    words = commands(URL, "abc123", ID)[field]
    fetched = re.findall(r"curl [^|&;]*", words)
    assert [each.strip() for each in fetched if re.search(r" -\w*k| --insecure", each)] == [f'curl -fsSk -o "$ca" {URL}/cacerts']
    first, checked, *rest = words.split(" && ")[1:]
    assert first == fetched[0].strip() and checked.startswith('echo "abc123  $ca" | ') and checked.endswith(" -c - >&2")
    assert len(fetched) == 2 and '--cacert "$ca"' in fetched[1] and fetched[1].strip() in rest[0]


@pytest.mark.parametrize(
    "variable",
    [
        {"name": "A; rm -rf /", "value": "x"},
        {"name": "A", "value": "x\nrm -rf /"},
        {"name": "A", "valueFrom": {"secretKeyRef": {}}},
        {"name": None, "value": "x"},
        {"value": "x"},
    ],
)
def test_a_variable_is_never_a_command(variable: dict[str, object]) -> None:
    assert commands(URL, "", ID, [variable]) == commands(URL, "", ID)


def test_quotes_in_a_value_stay_in_the_value() -> None:
    found = commands(URL, "", ID, [{"name": "A", "value": '"; $(reboot) `x` \\'}])
    assert found["nodeCommand"].startswith(r'A="\"; \$(reboot) \`x\` \\" curl')
    assert found["windowsNodeCommand"].startswith('$env:A="`"; `$(reboot) ``x`` \\"; curl.exe')


def test_without_a_server_url_there_are_no_commands() -> None:
    assert commands("", "", ID) == {}


def test_who_may_have_tokens_sees_them_and_nodes_get_their_own() -> None:
    crt = {"metadata": {"name": "default-token"}, "status": commands(URL, "", ID)}
    found = revealed(crt, "opens", "joins")["status"]
    assert all("opens" in found[field] and "joins" not in found[field] for field in IMPORTING)
    assert all("joins" in found[field] and "opens" not in found[field] for field in JOINING)
    assert found["token"] == "opens"
    assert crt["status"] == commands(URL, "", ID), "what is stored stays as it is"
    without = revealed(crt, "opens", "")["status"]
    assert all("{token}" in without[field] and "opens" not in without[field] for field in JOINING), "rather none than that one"


def test_the_checksum_of_a_ca_is_that_of_whole_lines() -> None:
    wanted = hashlib.sha256(b"PEM\n").hexdigest()
    assert ca_checksum("PEM") == ca_checksum("PEM\n") == wanted
    assert ca_checksum("") == ""


def test_powershell_takes_other_quotation_marks_for_its_own() -> None:
    found = commands(URL, "", ID, [{"name": "A", "value": "\u201d; reboot; \u201c\u201e"}])
    assert found["windowsNodeCommand"].startswith('$env:A="`\u201d; reboot; `\u201c`\u201e"; curl.exe')
