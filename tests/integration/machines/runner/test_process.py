"""Real processes: what they can reach, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.machines.runner import jail
from remuda.machines.runner.confinement import JailOptions, PythonPaths, environment, jailed
from remuda.machines.runner.process import Child, Directories
from tests.waiting import until

AROUND = PythonPaths.this({})


def spec(code: str, directory: Path, driver: str = "paper", **env: str) -> JailOptions:
    made = environment(AROUND, str(directory), {}, {}) | env
    # As the user who runs the tests: another one can't read what pytest makes.
    told = jailed((sys.executable, "-c", code), made, str(directory), AROUND, driver=driver, slot=0)
    return JailOptions(**{**told.told(), "uid": 0})


async def ran(told: JailOptions) -> tuple[int, str]:
    said: list[bytes] = []
    child = Child(told, said.append)
    try:
        return await child.ended(), b"".join(said).decode()
    finally:
        child.close()


async def test_it_says_what_it_says_and_ends_as_it_ends(tmp_path: Path) -> None:
    code, said = await ran(spec("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", tmp_path))
    assert code == 3 and sorted(said.split()) == ["err", "out"]


async def test_it_has_no_more_than_it_is_given(tmp_path: Path) -> None:
    code, said = await ran(
        spec("import os, sys; print(sorted(os.environ), os.getcwd(), sys.stdin.read())", tmp_path, PAPER_TOKEN="x")
    )
    assert code == 0 and "PAPER_TOKEN" in said and str(tmp_path) in said
    assert "REMUDA" not in said and "PYTEST" not in said
    listing = "import os; print(sorted(int(each) for each in os.listdir('/proc/self/fd'))[:4])"
    code, said = await ran(spec(listing, tmp_path))
    assert (code, said.strip()) == (0, "[0, 1, 2, 3]"), "nothing of the server's is open, but for the listing itself"


async def test_its_limits_hold(tmp_path: Path) -> None:
    code, said = await ran(spec("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))", tmp_path))
    assert code == 0 and said.strip() == "(1024, 1024)"
    code, _ = await ran(spec("open('large', 'wb').truncate(1 << 30)", tmp_path))
    assert code != 0 and not any(path.stat().st_size > 1 << 28 for path in tmp_path.iterdir())


async def test_it_reaches_no_file_but_its_own(tmp_path: Path) -> None:
    if not jail.version():
        pytest.skip("this kernel has no Landlock")
    own, data = tmp_path / "own", tmp_path / "data"
    own.mkdir()
    data.mkdir()
    (data / "kubeconfig").write_text("the administrator's")
    code = (
        "import os, ssl, json, asyncio\n"
        "open('mine', 'w').write('x'); print(open('mine').read())\n"
        f"for path in ({str(data / 'kubeconfig')!r}, {str(data)!r}, '/root', '/home'):\n"
        "    try:\n"
        "        os.listdir(path) if os.path.isdir(path) else open(path).read()\n"
        "        print('read', path)\n"
        "    except OSError: print('refused')\n"
        "try: open('/tmp/remuda-was-here', 'w'); print('wrote')\n"
        "except OSError: print('refused')\n"
    )
    status, said = await ran(spec(code, own))
    assert status == 0, said
    assert said.split() == ["x", "refused", "refused", "refused", "refused", "refused"]


async def test_a_driver_of_this_machine_is_not_confined(tmp_path: Path) -> None:
    code, said = await ran(spec(f"import os; print(os.listdir({str(tmp_path)!r}))", tmp_path, "local"))
    assert code == 0, said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_root_gives_each_process_a_user_of_its_own(tmp_path: Path) -> None:
    told = jailed(("/bin/sh", "-c", "id -u; cat /proc/1/environ"), {"PATH": os.defpath}, "/", AROUND, driver="paper", slot=5)
    code, said = await ran(JailOptions(**{**told.told(), "needed": (), "uid": 61184 + 5, "powerless": False}))
    assert code != 0 and said.split()[0] == str(61184 + 5)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_a_program_that_its_user_can_not_read_is_told_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    told = jailed((str(program),), {}, "/", AROUND, driver="paper", slot=1)
    code, said = await ran(JailOptions(**{**told.told(), "uid": 61185, "powerless": False}))
    assert code == 1 and said.startswith(f"MissingProgram: {program} can't be read by the user 61185") and said.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has what can be taken away")
async def test_root_without_setuid_can_do_no_more_than_its_user(tmp_path: Path) -> None:
    if not jail.version():
        pytest.skip("this kernel has no Landlock")
    code = (
        "import os\n"
        "print([line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapPrm', 'CapEff', 'CapBnd'))])\n"
        "try: os.setuid(1); print('another user')\n"
        "except PermissionError: print('refused')\n"
    )
    told = JailOptions(**{**spec(code, tmp_path).told(), "powerless": True})
    status, said = await ran(told)
    assert status == 0 and said.splitlines() == [f"{['0' * 16] * 3}", "refused"]
    status, said = await ran(JailOptions(**{**told.told(), "argv": ("/bin/sh", "-c", "exec grep CapEff /proc/self/status")}))
    assert said.split()[-1] == "0" * 16, "nor can what it becomes"


async def test_killing_it_ends_all_of_its_session(tmp_path: Path) -> None:
    code = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    said: list[bytes] = []
    child = Child(spec(code, tmp_path), said.append)
    waiting = asyncio.create_task(child.ended())
    try:
        await until(lambda: said)
        child.kill()
        assert await waiting == -signal.SIGKILL
    finally:
        child.close()
    await gone(int(b"".join(said)))


async def test_what_it_leaves_in_its_session_goes_with_it(tmp_path: Path) -> None:
    code, said = await ran(spec("import subprocess; print(subprocess.Popen(['sleep', '600']).pid)", tmp_path))
    assert code == 0
    await gone(int(said))


async def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    starter = (
        "import os, sys, time; from pathlib import Path\n"
        "from tests.integration.machines.runner.test_process import spec; from remuda.machines.runner.process import Child\n"
        "print(Child(spec('import time; time.sleep(600)', Path(sys.argv[1])), print).pid, flush=True); time.sleep(600)\n"
    )
    path = os.pathsep.join(each for each in sys.path if each)
    parent = subprocess.Popen(
        [sys.executable, "-c", starter, str(tmp_path)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )
    assert parent.stdout is not None
    pid = int(await asyncio.to_thread(parent.stdout.readline))
    # Until it has become its program, it dies by itself when it sees that it is alone.
    parent.kill()
    parent.wait()
    parent.stdout.close()
    await gone(pid)


async def gone(pid: int) -> None:
    def ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return True

    await until(ended, f"the end of process {pid}")


def test_processes_of_a_server_that_is_gone_end_and_no_others(tmp_path: Path) -> None:
    left = tmp_path / "remuda-jobs-999999999-123-abc"
    (left / "job-x").mkdir(parents=True)
    theirs = [str(left / "job-x"), str(tmp_path), f"{left}-else/job-x"]
    running = [subprocess.Popen(["sleep", "600"], env={"HOME": home}, start_new_session=True) for home in theirs]
    try:
        Directories(tmp_path).open()
        assert running[0].wait(60) == -signal.SIGKILL
        assert [each.poll() for each in running[1:]] == [None, None]
        assert not left.exists()
    finally:
        for each in running:
            each.kill()
            each.wait()
