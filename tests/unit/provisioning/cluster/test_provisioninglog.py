"""The story of a cluster, line by line."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.builtin_resources import CONFIG_MAPS, NAMESPACES
from remuda.provisioning.cluster.provisioninglog import LogLine, ProvisioningLogs, line_of, with_line
from tests.unit.access.management_api import Parts, World, world

from .mirrored_clusters import FLEET, demo, everything

Obj = dict[str, Any]
NOW = 1_800_000_000.0
CONFLICT = "Operation cannot be fulfilled on x: the object has been modified; please apply your changes to the latest version"


def condition(kind: str, status: str, message: str = "") -> Obj:
    return {"type": kind, "status": status, "message": message}


def cluster(*conditions: Obj, **status: Any) -> Obj:
    return {"status": {"conditions": list(conditions), **status}}


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        (cluster(), None),
        (cluster(condition("Provisioned", "Unknown", "waiting")), LogLine("waiting")),
        (cluster(condition("Provisioned", "False", "broken")), LogLine("broken", True)),
        (cluster(condition("Provisioned", "Unknown"), condition("Updated", "Unknown", "later")), None),
        (cluster(condition("Provisioned", "True"), condition("Updated", "Unknown", "updating")), LogLine("updating")),
        (cluster(condition("Provisioned", "True"), condition("Updated", "True")), None),
        (cluster(condition("Provisioned", "True"), condition("Updated", "True"), ready=True), LogLine("provisioning done")),
        (cluster(condition("Provisioned", "False", CONFLICT)), LogLine(f"Transient error encountered: {CONFLICT}", True)),
    ],
)
def test_what_a_cluster_says_is_a_line(wanted: Obj, line: LogLine | None) -> None:
    assert line_of(wanted) == line


def test_lines_are_added_when_they_say_something_else() -> None:
    once = with_line({}, LogLine("one"), NOW)
    assert once == {"log": "2027-01-15T08:00:00Z [INFO ] one\n", "last": "one"}
    assert with_line(once, LogLine("one"), NOW + 9) is once
    twice = with_line({**once, "mine": "kept"}, LogLine("two", True), NOW + 1)
    assert twice == {"log": f"{once['log']}2027-01-15T08:00:01Z [ERROR] two\n", "last": "two", "mine": "kept"}


def test_the_oldest_lines_go_when_there_are_too_many() -> None:
    data: dict[str, str] = {}
    for number in range(500):
        data = with_line(data, LogLine(f"number {number} ü"), NOW + number)
    lines = data["log"].splitlines()
    assert len(data["log"].encode()) <= 10_000 and len(lines) > 200
    assert lines[-1].endswith("number 499 ü") and lines[0].startswith("2027-")


def test_a_line_that_is_too_long_is_cut() -> None:
    found = with_line({}, LogLine("ü" * 20_000), NOW)
    assert len(found["log"].encode()) <= 10_000 and found["log"].endswith("ü\n")


def controllers(parts: Parts) -> Any:
    yield from everything(parts)
    yield ProvisioningLogs(parts.manager)


async def say(made: World, status: str, message: str) -> None:
    kept = [each for each in (await demo(made))["status"]["conditions"] if each["type"] != "Provisioned"]
    conditions = [*kept, condition("Provisioned", status, message)]
    await made.patch(provisioning.CLUSTERS, "demo", {"status": {"conditions": conditions}}, FLEET, "status")
    await made.settle(3)


async def log(made: World) -> Obj | None:
    return await made.find(CONFIG_MAPS, "provisioning-log", (await demo(made))["status"]["clusterName"])


async def test_a_cluster_that_is_made_here_has_a_log_in_its_own_namespace() -> None:
    async with world(controllers) as made:
        await made.wanted("demo", kubernetesVersion="v1.34.1+rke2r1", rkeConfig={})
        await made.settle(5)
        assert await log(made) is not None
        await say(made, "Unknown", "waiting for a machine")
        await say(made, "Unknown", "waiting for a machine")
        await say(made, "False", "it broke")
        found = await log(made)
        assert found is not None and found["data"]["last"] == "it broke"
        lines = found["data"]["log"].splitlines()
        assert [line.partition(" ")[2] for line in lines] == ["[INFO ] waiting for a machine", "[ERROR] it broke"]


async def test_a_deleted_log_begins_anew() -> None:
    async with world(controllers) as made:
        await made.wanted("demo", kubernetesVersion="v1.34.1+rke2r1", rkeConfig={})
        await made.settle(5)
        await say(made, "Unknown", "waiting")
        await made.delete(CONFIG_MAPS, "provisioning-log", (await demo(made))["status"]["clusterName"])
        await made.settle(3)
        found = await log(made)
        assert found is not None and found["data"]["last"] == "waiting"


async def test_an_import_has_none_until_there_is_something_to_tell() -> None:
    async with world(controllers) as made:
        await made.wanted("demo")
        await made.settle(5)
        assert await log(made) is None
        await say(made, "Unknown", "something")
        assert await log(made) is not None


async def test_no_cluster_writes_into_the_log_of_another() -> None:
    async with world(controllers) as made:
        await made.wanted("demo", kubernetesVersion="v1.34.1+rke2r1", rkeConfig={})
        await made.wanted("thief")
        await made.settle(5)
        name = (await demo(made))["status"]["clusterName"]
        said = {"clusterName": name, "conditions": [condition("Provisioned", "False", "stolen")]}
        await made.patch(provisioning.CLUSTERS, "thief", {"status": said}, FLEET, "status")
        await made.settle(5)
        found = await log(made)
        assert found is not None and "stolen" not in found.get("data", {}).get("log", "")


async def test_the_log_does_not_keep_a_cluster_from_going() -> None:
    async with world(controllers) as made:
        await made.wanted("demo", kubernetesVersion="v1.34.1+rke2r1", rkeConfig={})
        await made.settle(5)
        name = (await demo(made))["status"]["clusterName"]
        await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(60)
        assert await made.find(management.CLUSTERS, name) is None and await made.find(NAMESPACES, name) is None
