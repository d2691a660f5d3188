"""What processes of a host see around them."""

from __future__ import annotations

import re
from pathlib import Path

from remuda.agent import install
from remuda.hosts.environment import MARK, environment
from remuda.hosts.host_directory import HostDirectory, HostRecord
from remuda.provisioning import host_layout

PLACE, RECORD = HostDirectory(Path("/hosts/one")), HostRecord("one", "abc", "127.64.0.1", "")


def test_little_of_the_caller_comes_along() -> None:
    caller = {"PATH": "/usr/bin:.:/bin", "LANG": "C", "SECRET": "x", "HOME": "/home/me", "REMUDA_DATA_DIR": "/d"}
    found = environment(PLACE, RECORD, caller)
    assert found["PATH"].split(":")[0] == "/hosts/one/bin"
    assert found["PATH"].endswith(":/usr/bin:/bin")
    assert (found["HOME"], found["LANG"], found["HOSTNAME"]) == ("/hosts/one/root/root", "C", "one")
    assert (found["CATTLE_HOST_ROOT"], found["CATTLE_HOST_LOOPBACK"]) == ("/hosts/one/root", "127.64.0.1")
    assert found[MARK] == "abc"
    assert not {"SECRET", "REMUDA_DATA_DIR", "NO_PROXY"} & set(found)


def test_no_proxy_stands_between_hosts_of_one_machine() -> None:
    found = environment(PLACE, RECORD, {"https_proxy": "http://p", "NO_PROXY": "a.example,localhost"})
    assert found["https_proxy"] == "http://p"
    assert found["NO_PROXY"] == found["no_proxy"] == "a.example,localhost,127.0.0.1,127.0.0.0/8,127.64.0.1"


def test_the_variables_of_a_directory_host_have_the_same_names_in_all_parts() -> None:
    """The agent imports no other package, so its installer repeats the names of `provisioning.host_layout`."""
    installer = (Path(install.__file__).parent / name for name in ("install.sh", "root.sh", "uninstall.sh"))
    read = {name for script in installer for name in re.findall(r"CATTLE_HOST_\w+", script.read_text())}
    set_on_the_host = {name for name in environment(PLACE, RECORD, {}) if name.startswith("CATTLE_HOST_")}
    assert install.HOST_VARIABLES == host_layout.VARIABLES == read == set_on_the_host
