"""The pure parts of the driver digitalocean: tags, names of keys, fingerprints."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.machines.driver import Machine, Options
from remuda.machines.drivers.digitalocean import DigitalOcean
from remuda.machines.drivers.digitalocean import ssh_keys as names
from remuda.machines.drivers.digitalocean.ssh_keys import fingerprint
from remuda.machines.errors import DriverError

MACHINE = Machine("demo-1", Options("digitalocean", DigitalOcean.flags), Path("/nowhere"), token="t-1", owner="o-1")


def test_a_key_is_known_by_its_name() -> None:
    assert names.key_of(names.key_name(MACHINE)) == ("demo-1", "o-1", "t-1")
    assert names.key_of("my laptop") is None


def test_a_droplet_is_known_by_its_tags() -> None:
    assert names.token_in(["blue", *names.ours(MACHINE)]) == "t-1"
    assert names.token_in(["blue"]) == ""


@pytest.mark.parametrize("tag", ["with space", "ü", "a/b", "x" * 256])
def test_what_can_not_be_a_tag_is_refused(tag: str) -> None:
    with pytest.raises(DriverError) as caught:
        names.parsed(f"fine,{tag}")
    assert caught.value.field == "tags"


def test_a_fingerprint_is_that_of_ssh_keygen() -> None:
    public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFBCrCQTHrBVdtHYCn0Ru2pSpHoVdO0l0R4d5XVY8w2m a comment"
    found = fingerprint(public)
    assert len(found) == 47 and found.count(":") == 15
    assert found == fingerprint(public.rsplit(" ", 2)[0])
