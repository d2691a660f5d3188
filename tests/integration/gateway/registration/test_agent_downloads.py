"""What a host downloads: the right files by known names, and nothing else."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from remuda.agent.install import ARCHIVE
from remuda.gateway.registration.agent_downloads import AgentFiles, script
from remuda.gateway.server.serving_certificate import ca_checksum
from remuda.kube.errors import ApiError
from tests.integration.gateway.listening import door
from tests.unit.access.management_api import CA, URL
from tests.unit.gateway.management_gateway import Management, management
from tests.unit.gateway.registration.test_import_manifest import asked

ENVIRONMENT = {"REMUDA_SERVER_URL": URL}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Management]:
    async with management(ENVIRONMENT, CA) as made:
        made.services.data_dir = tmp_path
        AgentFiles(made.services)
        yield made


async def test_the_install_script_has_the_server_and_its_ca(place: Management) -> None:
    _, answer = await asked(place, "/system-agent-install.sh")
    assert answer.status == 200 and answer.text is not None and answer.text.startswith("#!/usr/bin/env sh\n")
    _, archive = await asked(place, f"/assets/{ARCHIVE}")
    assert isinstance(archive.body, bytes)
    for line in (
        f'CATTLE_AGENT_BINARY_BASE_URL="{URL}/assets"',
        f"CATTLE_SERVER='{URL}'",
        f'CATTLE_CA_CHECKSUM="{ca_checksum(CA)}"',
        "export STRICT_VERIFY='true'",
        f'CATTLE_AGENT_ARCHIVE_CHECKSUM="{hashlib.sha256(archive.body).hexdigest()}"',
    ):
        assert f"\n{line}\n" in answer.text, line
    assert "CATTLE_TOKEN=" not in answer.text.partition("\n\n")[0]


async def test_the_script_of_a_machine_has_its_token_and_what_its_cluster_says(place: Management) -> None:
    text = script(place.services, URL, "tok=", [("HTTP_PROXY", "http://p:1"), ("STRICT_VERIFY", "false")])
    head = text.partition("\n\n")[0].splitlines()
    assert "export HTTP_PROXY='http://p:1'" in head and "export STRICT_VERIFY='false'" in head
    assert head[-2:] == ["CATTLE_ROLE_NONE=true", 'CATTLE_TOKEN="tok="']
    assert "CATTLE_AGENT_ARCHIVE_CHECKSUM=" not in "\n".join(head), "the agent may be younger than the script"


async def test_the_agent_is_one_file_that_is_fetched_once(place: Management) -> None:
    _, answer = await asked(place, f"/assets/{ARCHIVE}")
    assert isinstance(answer.body, bytes)
    assert "remuda_agent/cli.py" in zipfile.ZipFile(io.BytesIO(answer.body)).namelist()
    tag = answer.headers["ETag"]
    assert tag == f'"{hashlib.sha256(answer.body).hexdigest()}"'
    for known, status in ((tag, 304), (f'"x", W/{tag}', 304), ('"x"', 200)):
        _, again = await asked(place, f"/assets/{ARCHIVE}", headers={"If-None-Match": known})
        assert again.status == status
    _, sums = await asked(place, "/assets/sha256sum.txt")
    assert sums.text is not None and f"{tag.strip(chr(34))}  {ARCHIVE}\n" in sums.text


async def test_it_can_be_removed_again(place: Management) -> None:
    found = [(await asked(place, path))[1].text for path in ("/system-agent-uninstall.sh", "/assets/system-agent-uninstall.sh")]
    assert found[0] == found[1] and found[0] is not None and found[0].startswith("#!")


async def test_other_names_are_not_found(place: Management) -> None:
    for name in ("rancher-system-agent-amd64", "x", "install.sh", "__init__.py", "remuda-agent.pyz.sha256"):
        with pytest.raises(ApiError) as refused:
            await asked(place, f"/assets/{name}")
        assert refused.value.code == 404


async def test_binaries_of_the_original_are_served_if_an_administrator_put_them_there(place: Management, tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "rancher-system-agent-amd64").write_bytes(b"\x7fELF")
    (tmp_path / "assets" / "secret").write_bytes(b"x")
    _, answer = await asked(place, "/system-agent-install.sh")
    assert answer.text is not None
    assert f"CATTLE_AGENT_FALLBACK_URL='{URL}/assets/rancher-system-agent-{{arch}}'" in answer.text
    async with door(place) as where, aiohttp.ClientSession() as http:
        got = await http.get(f"http://{where}/assets/rancher-system-agent-amd64")
        assert (got.status, await got.read()) == (200, b"\x7fELF")


async def test_the_command_for_windows_says_that_there_is_none(place: Management) -> None:
    _, answer = await asked(place, "/wins-agent-install.ps1")
    assert answer.text is not None and "Windows" in answer.text and "exit 1" in answer.text
