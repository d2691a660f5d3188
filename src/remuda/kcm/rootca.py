"""The authorities that pods believe, which may be others tomorrow."""

from __future__ import annotations

from collections.abc import Callable


class RootCa:
    """PEM; empty where nothing is published. Who follows is told when it has become another."""

    def __init__(self, pem: str) -> None:
        self.pem = pem
        self._followers: list[Callable[[], None]] = []

    def use(self, pem: str) -> None:
        if pem == self.pem:
            return
        self.pem = pem
        for follower in list(self._followers):
            follower()

    def on_change(self, follower: Callable[[], None]) -> None:
        self._followers.append(follower)
