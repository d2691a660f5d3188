"""What of a command line is left when the token is taken off it."""

from __future__ import annotations

import pytest

from remuda.cli.programs.cluster_agent import without_token


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (["--token", "secret"], []),
        (["--token=secret"], []),
        (["--server", "https://x", "--token", "secret", "-v"], ["--server", "https://x", "-v"]),
        (["--token-file", "f"], ["--token-file", "f"]),
        (["--token-file=f"], ["--token-file=f"]),
        (["-v", "--token"], ["-v"]),
    ],
)
def test_without_token(given: list[str], left: list[str]) -> None:
    start = ["python3", "-m", "remuda", "cluster-agent"]
    assert without_token([*start, *given]) == [*start, *left]
