"""The agent's errors, as few kinds as callers must tell apart."""

from __future__ import annotations


class AgentError(Exception):
    """Anything the agent can say in one sentence; the base of the others."""


class ConfigError(AgentError):
    """A file the agent was started with is missing, unsafe or wrong: it must not start."""


class PlanError(AgentError):
    """The plan can't be read; the same bytes will fail again."""


class OutsideRoot(AgentError):
    """A path leaves the directory this host lives in."""


class InterlockHeld(AgentError):
    """An installer is about to restart the agent; nothing may start now."""


class ImageError(AgentError):
    """An image can't be found, fetched, trusted or unpacked."""


class ApiError(AgentError):
    """The Kubernetes API answered no. ``status`` is the HTTP code, 0 when there was no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class UntrustedServer(ApiError):
    """The server's certificate was signed by no CA that we know."""


class Departed(AgentError):
    """The server has deleted this host's machine: there is nothing left to follow."""
