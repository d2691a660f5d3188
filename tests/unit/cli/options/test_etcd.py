"""The options for several servers on one etcd: what they mean, and what is told by name when they are wrong."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from remuda.apiserver.storage.etcd import EtcdConfig
from remuda.cli.options.etcd import Sharing, etcd_options

TOKEN = "a token of some length"
URL = "https://10.0.0.1:2379"


def parsed(*arguments: str, environ: dict[str, str] | None = None) -> Sharing | str:
    """What they come to, or what is said against them."""
    found: list[Sharing] = []

    @click.command()
    @etcd_options
    def command(sharing: Sharing) -> None:
        found.append(sharing)

    result = CliRunner().invoke(command, arguments, env={"REMUDA_TOKEN": None, "REMUDA_ETCD": None, **(environ or {})})
    if result.exit_code:
        assert result.exit_code == 2, result.output
        return " ".join(result.output.split())
    return found[0]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    made = {}
    for name in ("ca", "crt", "key", "token"):
        path = tmp_path / name
        path.write_text(TOKEN + "\n")
        path.chmod(0o600)
        made[name] = str(path)
    return made


def test_nothing_is_shared_unless_it_is_said() -> None:
    assert parsed() == Sharing(None, None, "")


def test_members_are_given_with_commas_or_one_by_one_or_by_the_environment() -> None:
    three = EtcdConfig(("http://a:1", "http://b:2", "http://[::1]:3"))
    assert parsed("--etcd", "http://a:1,http://b:2/", "--etcd", "http://[::1]:3", "--token", TOKEN) == Sharing(three, None, TOKEN)
    assert parsed("--token", TOKEN, environ={"REMUDA_ETCD": "http://a:1,http://b:2,http://[::1]:3"}) == Sharing(
        three, None, TOKEN
    )
    assert parsed("--etcd", "http://a:1, http://a:1/", "--token", TOKEN) == Sharing(EtcdConfig(("http://a:1",)), None, TOKEN)


def test_certificates_prefix_and_keys_get_where_they_belong(files: dict[str, str], tmp_path: Path) -> None:
    shown = ["--etcd-cafile", files["ca"], "--etcd-certfile", files["crt"], "--etcd-keyfile", files["key"]]
    config = EtcdConfig((URL,), Path(files["ca"]), Path(files["crt"]), Path(files["key"]), "/prod")
    found = parsed("--etcd", URL, *shown, "--etcd-prefix", "/prod/registry/", "--pki-dir", str(tmp_path / "pki"))
    assert found == Sharing(config, tmp_path / "pki", "")
    assert parsed("--etcd", URL, "--token-file", files["token"]) == Sharing(EtcdConfig((URL,)), None, TOKEN)
    assert parsed("--pki-dir", str(tmp_path)) == Sharing(None, tmp_path, "")
    environ = {"REMUDA_ETCD": URL, "REMUDA_ETCD_CAFILE": files["ca"], "REMUDA_TOKEN_FILE": files["token"]}
    assert parsed(environ=environ) == Sharing(EtcdConfig((URL,), Path(files["ca"])), None, TOKEN)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("10.0.0.1:2379", "has no scheme"),
        ("etcd.example.org", "has no scheme"),
        ("https://10.0.0.1", "has no port"),
        ("ftp://10.0.0.1:2379", "has the scheme 'ftp'"),
        ("unix:///run/etcd.sock", "has the scheme 'unix'"),
        ("https://:2379", "has no host"),
        ("https://host:port", "is not a URL"),
        ("https://host:99999", "is not a URL"),
        ("https://user:secret@host:2379", "has more than a scheme, a host and a port"),
        ("https://host:2379/v3", "has more than a scheme, a host and a port"),
        (",", "no URL is given"),
        ("http://a:1,https://b:2", "all members must be one or the other"),
    ],
)
def test_a_wrong_url_is_told(url: str, sentence: str) -> None:
    found = parsed("--etcd", url, "--token", TOKEN)
    assert isinstance(found, str)
    assert sentence in found
    assert "--etcd:" in found


def with_files(files: dict[str, str], arguments: list[str]) -> list[str]:
    return [files.get(argument.removeprefix("@"), argument) if argument.startswith("@") else argument for argument in arguments]


@pytest.mark.parametrize(
    ("arguments", "option", "sentence"),
    [
        (["--etcd", "http://a:1", "--etcd-cafile", "@ca"], "--etcd-cafile", "has no effect with http://a:1"),
        (["--etcd", "http://a:1", "--etcd-certfile", "@crt", "--etcd-keyfile", "@key"], "--etcd-certfile", "has no effect"),
        (["--etcd", URL, "--etcd-certfile", "@crt"], "--etcd-certfile", "needs --etcd-keyfile, too"),
        (["--etcd", URL, "--etcd-keyfile", "@key"], "--etcd-keyfile", "needs --etcd-certfile, too"),
        (["--etcd", URL, "--etcd-cafile", "/no/such/file"], "--etcd-cafile", "/no/such/file can't be read: No such file"),
        (["--etcd", URL, "--etcd-cafile", "/"], "--etcd-cafile", "can't be read: Is a directory"),
        (["--etcd-cafile", "@ca"], "--etcd-cafile", "is for --etcd, which is not given"),
        (["--etcd-prefix", "/x/registry"], "--etcd-prefix", "is for --etcd, which is not given"),
        (["--etcd", URL, "--etcd-prefix", "registry"], "--etcd-prefix", "must be a path that ends in /registry"),
        (["--etcd", URL, "--etcd-prefix", "/other"], "--etcd-prefix", "must be a path that ends in /registry"),
        (["--etcd", URL, "--etcd-prefix", "/a//registry"], "--etcd-prefix", "must be a path"),
        (["--etcd", URL, "--etcd-prefix", "/../registry"], "--etcd-prefix", "must be a path"),
        (["--etcd", URL], "--etcd", "say --pki-dir DIR or --token-file FILE"),
        (["--etcd", URL, "--pki-dir", "/x", "--token-file", "@token"], "--pki-dir", "and a token as well"),
        (["--etcd", URL, "--token", TOKEN, "--token-file", "@token"], "--token-file", "and --token as well"),
        (["--token", TOKEN], "--token", "is for --etcd, which is not given"),
        (["--token-file", "@token"], "--token-file", "is for --etcd, which is not given"),
        (["--etcd", URL, "--token", "short"], "--token", "has 5 characters, it must have at least 16"),
        (["--etcd", URL, "--token-file", "/dev/null"], "--token-file", "at least 16"),
        (["--etcd", URL, "--token-file", "/no/such/file"], "--token-file", "can't be read: No such file"),
    ],
)
def test_what_does_not_go_together_is_told_by_name(
    files: dict[str, str], arguments: list[str], option: str, sentence: str
) -> None:
    # Where the keys are not what is wrong, they are right.
    about_keys = arguments == ["--etcd", URL] or any("token" in each or "pki" in each for each in arguments)
    found = parsed(*with_files(files, arguments), *([] if about_keys or "--etcd" not in arguments else ["--token", TOKEN]))
    assert isinstance(found, str)
    assert sentence in found
    assert f"{option}:" in found


def test_a_token_that_others_can_read_is_refused(files: dict[str, str]) -> None:
    Path(files["token"]).chmod(0o644)
    found = parsed("--etcd", URL, "--token-file", files["token"])
    assert isinstance(found, str)
    assert "chmod 600" in found


def test_a_token_is_never_shown(files: dict[str, str]) -> None:
    from remuda.apiserver.server import Config

    assert TOKEN not in repr(Config(None, token=TOKEN))
    found = parsed("--etcd", "nonsense", "--token", TOKEN)
    assert isinstance(found, str)
    assert TOKEN not in found
