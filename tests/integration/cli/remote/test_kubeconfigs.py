"""What is printed to be copied into a shell is one word there, whatever somebody called their cluster."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from remuda.cli.remote.kubeconfigs import merge, shown

NAMES = ["edge", "my cluster", "$(reboot)", "it's", "a;b", "-x", "`id`", "ä ö", "line\nbreak", "\x1b[2Jgone", "a\\'b\x07"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_survives_the_shell(name: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    utf8 = {"LC_ALL": "C.UTF-8"}
    printed = subprocess.run([bash, "-c", f"printf %s {shown(name)}"], env=utf8, capture_output=True, check=True, timeout=60)
    assert printed.stdout.decode() == name
    assert shown(name).isprintable()


def test_the_command_that_is_suggested_can_be_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "my cluster; reboot"
    config = {
        "clusters": [{"name": name, "cluster": {"server": "https://remuda.test/k8s/clusters/c-1"}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "u"}}],
        "current-context": name,
    }
    merge(yaml.safe_dump(config), tmp_path / "config", "", use=False, force=False)
    assert "Try:  kubectl --context 'my cluster; reboot' get namespaces\n" in capsys.readouterr().out
