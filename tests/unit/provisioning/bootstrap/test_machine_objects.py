"""What a host is started with."""

from __future__ import annotations

import base64
import gzip

import pytest

from remuda.kube.encoding import yamlio
from remuda.provisioning.bootstrap.machine_objects import UserdataError, bootstrap_data

SCRIPT = b"#!/usr/bin/env sh\nCATTLE_TOKEN=abc\n"
OTHER = "infrastructure.cluster.x-k8s.io"


@pytest.mark.parametrize("group", ["rke-machine.cattle.io", "rke.cattle.io", "elemental.cattle.io"])
def test_who_installs_by_itself_gets_the_script(group: str) -> None:
    assert bootstrap_data(SCRIPT, group, "ignored: true") == SCRIPT


def test_others_get_cloud_config_with_the_users_wishes_after_ours() -> None:
    userdata = "#cloud-config\nusers: [a]\nruncmd:\n- echo hi\nwrite_files:\n- path: /x\n"
    text = bootstrap_data(SCRIPT, OTHER, userdata).decode()
    assert text.startswith("## template: jinja\n#cloud-config\n")
    found = yamlio.loads(text)
    assert found["runcmd"] == ["sh /usr/local/custom_script/install.sh", "echo hi"] and found["users"] == ["a"]
    ours, theirs = found["write_files"]
    assert theirs == {"path": "/x"} and (ours["encoding"], ours["permissions"]) == ("gzip+b64", "0600")
    assert gzip.decompress(base64.b64decode(ours["content"])) == SCRIPT


def test_the_same_script_gives_the_same_bytes() -> None:
    assert bootstrap_data(SCRIPT, OTHER) == bootstrap_data(SCRIPT, OTHER, "\n")


@pytest.mark.parametrize("userdata", ["- a", "runcmd: x", "a: [", "write_files: {a: b}"])
def test_user_data_that_is_no_cloud_config_is_refused(userdata: str) -> None:
    with pytest.raises(UserdataError):
        bootstrap_data(SCRIPT, OTHER, userdata)
