"""User data with the bootstrap script in it: a person's own wishes first, as they wrote them, then the script."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import pytest
import yaml

from remuda.machines.bootstrap_script import UserdataError, merged

SCRIPT = b"#!/usr/bin/env sh\necho install\n"


def file_of(document: dict[str, Any]) -> str:
    written = document["write_files"][-1]
    assert (written["encoding"], written["permissions"]) == ("gzip+b64", "0644")
    return gzip.decompress(base64.b64decode(written["content"])).decode()


def test_without_user_data_there_is_the_script_alone() -> None:
    text = merged(b"", SCRIPT, "m-1").decode()
    content = base64.b64encode(gzip.compress(b"echo install\n", mtime=0)).decode()
    assert text == (
        "#cloud-config\n"
        "hostname: m-1\n"
        "runcmd:\n"
        "    - sh /usr/local/custom_script/install.sh\n"
        "write_files:\n"
        f"    - content: {content}\n"
        "      encoding: gzip+b64\n"
        "      path: /usr/local/custom_script/install.sh\n"
        '      permissions: "0644"\n'
    )


def test_cloud_config_keeps_what_it_says_and_the_script_comes_last() -> None:
    given = b"#cloud-config\npackages:\n- foo\nruncmd:\n- echo first\n"
    text = merged(given, SCRIPT, "hosty").decode()
    assert text.startswith("#cloud-config\nhostname: hosty\npackages:\n    - foo\nruncmd:\n    - echo first\n    - sh /usr/local")
    assert file_of(yaml.safe_load(text)) == "echo install\n"


def test_values_stay_as_they_are_written() -> None:
    given = b"#cloud-config\nssh_pwauth: yes\nwrite_files:\n- {path: /a, permissions: 0600, content: '1e3'}\nz: |\n  a\n  b\n"
    text = merged(given, SCRIPT, "m").decode()
    assert "ssh_pwauth: yes\n" in text and "permissions: 0600" in text
    # cloud-init reads it as it would have read the person's own file.
    before, after = yaml.safe_load(given), yaml.safe_load(text)
    assert after["write_files"][0] == before["write_files"][0]
    assert (after["ssh_pwauth"], after["z"]) == (True, "a\nb\n")


def test_a_shell_script_is_run_before_ours_as_one() -> None:
    text = merged(b"#!/bin/bash\necho mine", SCRIPT, "m").decode()
    assert file_of(yaml.safe_load(text)) == "echo mine\n\necho install\n"


def test_a_host_name_is_the_persons_the_override_or_the_machines() -> None:
    assert yaml.safe_load(merged(b"#cloud-config\nhostname: mine\n", SCRIPT, "m", "short"))["hostname"] == "mine"
    assert yaml.safe_load(merged(b"", SCRIPT, "m", "short"))["hostname"] == "short"
    assert yaml.safe_load(merged(b"", SCRIPT, "123"))["hostname"] == "123"


def test_windows_has_its_own_ways() -> None:
    document = yaml.safe_load(merged(b"", b"Write-Host hi\n", "m", system="windows"))
    assert document["set_hostname"] == "m" and "hostname" not in document
    assert document["runcmd"] == ["powershell C:\\install.ps1"]
    assert document["write_files"][0]["path"] == "C:\\install.ps1"


@pytest.mark.parametrize("empty", [b"#cloud-config", b"#cloud-config\n", b"#cloud-config\nruncmd:\nwrite_files: null\n"])
def test_nothing_said_is_nothing_wrong(empty: bytes) -> None:
    assert yaml.safe_load(merged(empty, SCRIPT, "m"))["runcmd"] == ["sh /usr/local/custom_script/install.sh"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"hello", "does not begin with '#!' or '#cloud-config'"),
        (b"## template: jinja\n#cloud-config\n", "does not begin with"),
        (b"#cloud-config\na: [", "no YAML: line"),
        (b"#cloud-config\n- a\n", "must be a mapping"),
        (b"#cloud-config\nruncmd: hello\n", "unable to get runcmd from cloud-config YAML"),
        (b"#cloud-config\na: 1\na: 2\n", "has a twice"),
        (b"#cloud-config\n\xff\xfe", "no YAML"),
    ],
)
def test_what_can_not_be_merged_is_refused_with_the_reason(given: bytes, why: str) -> None:
    with pytest.raises(UserdataError, match=why.replace("[", r"\[")):
        merged(given, SCRIPT, "m")
