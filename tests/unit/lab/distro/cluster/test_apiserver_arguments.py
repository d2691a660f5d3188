"""What is said to the API server of a simulated cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.kube.clock import VirtualClock
from remuda.kube.encoding import yamlio
from remuda.lab.distro.cluster.apiserver import apiserver_arguments as arguments
from remuda.lab.distro.cluster.apiserver import token_webhook
from remuda.lab.distro.config import settings
from remuda.lab.distro.config.arguments import ConfigError

FILE = "authentication-token-webhook-config-file"


def told(tmp_path: Path, *said: str) -> settings.Settings:
    return settings.of({"kube-apiserver-arg": list(said)}, tmp_path)


def webhook_file(tmp_path: Path, **user: str) -> Path:
    path = tmp_path / "webhook.yaml"
    cluster = {"server": "http://127.0.0.1:6440/v1/authenticate"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": user}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    path.write_text(yamlio.dumps(document))
    return path


async def test_a_webhook_is_asked_when_a_file_says_so(tmp_path: Path) -> None:
    assert token_webhook(told(tmp_path, "v=2"), VirtualClock()) is None
    found = token_webhook(told(tmp_path, f"--{FILE}={webhook_file(tmp_path)}"), VirtualClock())
    assert found is not None
    await found[1].close()


def test_of_what_is_said_twice_the_last_counts(tmp_path: Path) -> None:
    assert arguments(told(tmp_path, "v=2", "--v=3", "flag")) == {"v": "3", "flag": ""}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ((f"{FILE}=/nowhere",), "No such file"),
        ((f"{FILE}=/dev/null",), "context"),
        ((f"{FILE}=/x", "authentication-token-webhook-version=v2"), "one of v1, v1beta1"),
        ((f"{FILE}=/x", "authentication-token-webhook-cache-ttl=long"), "cache-ttl"),
    ],
)
def test_what_can_not_be_used_is_told(tmp_path: Path, said: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match="kube-apiserver-arg") as raised:
        token_webhook(told(tmp_path, *said), VirtualClock())
    assert why in str(raised.value)


def test_a_webhook_that_wants_a_password_is_none_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not supported"):
        token_webhook(told(tmp_path, f"{FILE}={webhook_file(tmp_path, token='t')}"), VirtualClock())
