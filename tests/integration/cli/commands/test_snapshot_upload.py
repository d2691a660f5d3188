"""`remuda snapshot import CLUSTER FILE` and `remuda cluster recover --from-file` on simulated clusters, which have no bucket."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from remuda.api.provisioning_cattle_io import CLUSTERS as _CLUSTERS
from remuda.gateway.registration.node_registration import kubeconfig
from remuda.kube.encoding import gojson
from remuda.kube.objects import dig
from remuda.lab.sim.provisioning_world import WORKSPACE
from remuda.lab.sim.saved_snapshots import SavedSnapshot, database
from remuda.provisioning.etcd.uploaded_files import HOSTS_PATH
from remuda.provisioning.planner.snapshot import CheckSnapshot
from tests.integration.provisioning.test_restore_scripts import REQUEST, planned, written
from tests.scenarios.provisioned import DEMO, build, ready
from tests.scenarios.test_recovering import of_world
from tests.scenarios.test_restoring import add_map, maps, save
from tests.scenarios.test_snapshot_inventory import objects

from .served_world import ServedWorld, served
from .test_snapshot_import import recovered

FILE = "on-demand-h0-1795089600"


@asynccontextmanager
async def with_file(directory: Path) -> AsyncIterator[tuple[ServedWorld, Path]]:
    """A cluster with a snapshot that a user has on a disk alone, and a ConfigMap that is in it, and one that is not."""
    async with served(directory) as found:
        world = found.world
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await add_map(world, "before")
        await save(world, 1)
        saved: SavedSnapshot = next(iter(world.distribution(DEMO).snapshots[hosts[0].name].values()))
        for each in hosts:
            world.distribution(DEMO).snapshots[each.name] = {}
        found.keep(saved, directory / "kept" / FILE)
        await add_map(world, "after")
        yield found, directory / "kept" / FILE


async def test_a_file_is_uploaded_checked_restored_and_deleted(tmp_path: Path) -> None:
    async with with_file(tmp_path) as (found, file):
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        done = await found.run(f"snapshot import demo {file}")
        assert done.code == 0, done.err
        assert re.fullmatch(rf"demo-server-{FILE}-\w+: [\d.]+Ki, v1\.34\.1\+remuda1, on server\n", done.out), done.out
        assert f"{FILE}: the server checks it" in done.err
        locations = {dig(each, "snapshotFile", "location") for each in await objects(found.world)}
        assert f"server://{sha256}/{FILE}" in locations
        again = await found.run(f"snapshot import demo {file} -o json")
        (copy,) = json.loads(again.out)["copies"]
        assert again.code == 0 and copy["verification"]["result"] == "valid" and "otherCluster" not in copy
        listed = await found.run(f"snapshot ls demo -n {WORKSPACE}")
        assert f"{FILE[: -len('-h0-1795089600')]}" in listed.out and "server" in listed.out
        checked = await found.run(f"snapshot verify demo {copy['name']}")
        assert checked.code == 0 and "valid" in checked.out, checked.err
        restored = await found.run(f"snapshot restore demo {copy['name']} --config all --yes")
        assert restored.code == 0 and f"the file {FILE}, which was uploaded" in restored.err, restored.err
        await ready(found.world)
        assert await maps(found.world) == {"before"}
        assert [name for name, files in found.world.distribution(DEMO).snapshots.items() if FILE in files] == ["h0"]
        deleted = await found.run(f"snapshot delete demo {copy['name']} --yes")
        assert deleted.code == 0 and "server: deleted" in deleted.err, deleted.err
        assert not list((tmp_path / "uploads").glob("*/*"))


async def test_a_lost_cluster_comes_back_from_a_file(tmp_path: Path) -> None:
    async with with_file(tmp_path) as (found, file):
        for host in [host for host in of_world(found.world) if host.roles == "ec"]:
            await found.world.hosts.remove(host)
        for line, text in (
            (f"--from-file {file} --snapshot snap", "exclude each other"),
            ("--snapshot snap --other-cluster", "--other-cluster needs --from-s3 or --from-file"),
            (f"--from-s3 {file}", "--from-s3 needs s3://BUCKET/FOLDER/FILE"),
        ):
            refused = await found.run(f"cluster recover demo {line} --yes")
            assert refused.code == 2 and text in refused.err
        refused = await found.run(f"cluster recover demo --from-file {file}.gone --yes")
        assert refused.code == 3 and "gone can't be read: No such file or directory" in refused.err
        assert f"from      the file {FILE}, which was uploaded" in await recovered(found, f"--from-file {file}")


async def test_what_is_no_snapshot_of_this_cluster_is_refused(tmp_path: Path) -> None:
    async with with_file(tmp_path) as (found, file):
        (tmp_path / "text").write_text("no database" * 9)
        (tmp_path / "-x").write_bytes(file.read_bytes())
        uid = "6d3f0f5c-2b1e-4a79-808d-2d7f6c5b4a39"
        another = database([(b"/registry/namespaces/kube-system", f'{{"metadata":{{"uid":"{uid}"}}}}'.encode())])
        (tmp_path / "another").write_bytes(another)
        for name, code, text in (
            ("text", 1, "text is not imported: it is no database of etcd"),
            ("gone", 3, "gone can't be read: No such file or directory"),
            ("-x", 2, "'-x' is not the name of a file that etcd could be restored from"),
            ("another", 4, f"it is of another cluster: its id is {uid}"),
        ):
            done = await found.run(f"snapshot import demo {tmp_path}/{name}")
            assert done.code == code and text in done.err, done
        done = await found.run(f"snapshot import demo {tmp_path}/another --other-cluster -o json")
        assert done.code == 0 and json.loads(done.out)["copies"][0]["otherCluster"] is True, done.err
        files, found.world.gateway.uploads.files = found.world.gateway.uploads.files, None
        done = await found.run(f"snapshot import demo {file}")
        assert done.code == 4 and "there may be several management servers" in done.err
        found.world.gateway.uploads.files = files


async def test_an_upload_that_was_cut_goes_on(tmp_path: Path) -> None:
    async with with_file(tmp_path) as (found, file):
        content = file.read_bytes()
        (wanted,) = (await found.world.client.list(_CLUSTERS, WORKSPACE))["items"]
        directory = tmp_path / "uploads" / wanted["metadata"]["uid"]
        directory.mkdir(parents=True)
        part = directory / f"{hashlib.sha256(content).hexdigest()}.part"
        part.write_bytes(content[:5000])
        done = await found.run(f"snapshot import demo {file}")
        assert done.code == 0 and re.search(r"the server has 4\.9Ki of [\d.]+Ki of it", done.err), done.err
        part.with_suffix("").unlink()
        part.write_bytes(b"x" * 5000)
        done = await found.run(f"snapshot import demo {file}")
        assert done.code == 1 and "its SHA-256 differs" in done.err, done.err
        assert (await found.run(f"snapshot import demo {file}")).code == 0


async def test_a_host_with_etcd_gets_the_file_with_its_own_token(tmp_path: Path) -> None:
    async with with_file(tmp_path) as (found, file):
        assert (await found.run(f"snapshot import demo {file}")).code == 0
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        plan = planned(CheckSnapshot(REQUEST, FILE, f"server://{sha256}/{FILE}", 0, sha256, uploaded=True))
        fetch, check = plan.instructions[1:]
        script = written(plan, tmp_path)[fetch.args[0]]
        assert check.args[1] == fetch.args[1].replace("fetch", "check") == f"/var/lib/rancher/k3s/server/db/snapshots/{FILE}"
        assert fetch.args[2:] == (sha256, "/etc/rancher/agent/config.yaml", HOSTS_PATH)
        config, target = tmp_path / "config.yaml", tmp_path / "db" / "snapshots" / FILE
        server = (tmp_path / "kubeconfig").read_text().partition("server: ")[2].split()[0]

        async def run(token: str) -> tuple[int, str]:
            connection = {"kubeConfig": kubeconfig(server, "", token), "namespace": WORKSPACE, "secretName": "plan"}
            (tmp_path / "connection.json").write_bytes(gojson.dumps_indented(connection))
            config.write_text(f"remoteEnabled: true\nconnectionInfoFile: {tmp_path}/connection.json\n")
            arguments = (script, str(target), sha256, str(config), HOSTS_PATH)
            shell = await asyncio.create_subprocess_exec(
                "sh", "-c", 'sleep() { :; }; . "$0"', *arguments, stderr=asyncio.subprocess.PIPE
            )
            _, said = await shell.communicate()
            return shell.returncode or 0, said.decode()

        tokens = {host.name: host.access.token for host in of_world(found.world) if host.access is not None}
        code, said = await run(tokens["h3"])
        assert code == 1 and "403" in said and not target.exists(), said
        code, said = await run("no-token")
        assert code == 1 and "401" in said, said
        part = target.parent / f".{sha256}.part"
        part.write_bytes(file.read_bytes()[:5000])
        assert await run(tokens["h0"]) == (0, "")
        assert target.read_bytes() == file.read_bytes()
        assert not part.exists()
        part.write_bytes(b"x" * 9000)
        target.unlink()
        assert await run(tokens["h1"]) == (0, ""), "a part of something else is thrown away"
        assert target.read_bytes() == file.read_bytes() and target.stat().st_mode & 0o777 == 0o600
