"""What the image of Jobs that make machines has of us and of others; tests/e2e/machines builds it and runs Jobs in it."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

import remuda
from remuda.images import machine, recipe
from remuda.images.machine import _UNUSED
from remuda.machines import driver_registry


def test_every_driver_is_in_it_and_no_server() -> None:
    found = recipe.needed(Path(remuda.__file__).parents[1], machine.starts())
    assert {*driver_registry.modules(), "remuda.cli.programs.provision", "remuda.machines.provisioner.external_driver"} <= set(
        found
    )
    for name in (
        "remuda.cli.programs.serve",
        "remuda.apiserver.server",
        "remuda.gateway",
        "remuda.machines.runner",
        "remuda.runtime",
    ):
        assert name not in found, name
    assert len(found) < 120


def test_its_wheels_are_those_that_drivers_are_tested_with() -> None:
    listed = dict(entry.split("==") for entry in recipe.wanted(machine.REQUIREMENTS))
    assert {"asyncssh", "boto3", "botocore"} <= set(listed)
    for name, pinned in listed.items():
        # botocore says itself that it wants another one than the newest.
        if name != "python-dateutil":
            assert version(name).split(".")[0] == pinned.split(".")[0], name
    assert all(len(hashes) == 1 for hashes in recipe.wanted(machine.REQUIREMENTS).values()), "they are the same everywhere"


@pytest.mark.parametrize(
    ("path", "unused"),
    [
        ("isal/__init__.py", True),
        ("uvloop-0.23.0.dist-info/METADATA", True),
        ("botocore/data/s3/2006-03-01/service-2.json.gz", True),
        ("botocore/data/ec2/2016-11-15/service-2.json.gz", False),
        ("botocore/data/endpoints.json", False),
        ("boto3/examples/s3.rst", True),
        ("boto3/data/ec2/2016-11-15/resources-1.json", False),
        ("asyncssh/__init__.py", False),
    ],
)
def test_of_amazons_services_only_the_one_with_machines(path: str, unused: bool) -> None:
    assert bool(_UNUSED.match(f"usr/local/lib/python3.13/dist-packages/{path}")) is unused


def test_it_runs_as_jobs_expect() -> None:
    """As rancher-machine's own image: the user that the Job says, its home, and where the server's certificates are."""
    settings = machine.settings()
    assert settings["Entrypoint"] == ["/usr/local/bin/remuda", "provision"]
    assert settings["User"] == "1000:1000" and settings["WorkingDir"] == "/home/machine"
    assert "SSL_CERT_DIR=/etc/rancher/ssl" in str(settings["Env"])
