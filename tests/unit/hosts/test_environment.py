"""What processes of a host see around them."""

from __future__ import annotations

from pathlib import Path

from remuda.hosts.environment import MARK, environment
from remuda.hosts.host_directory import Place, Record

PLACE, RECORD = Place(Path("/hosts/one")), Record("one", "abc", "127.64.0.1", "")


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
