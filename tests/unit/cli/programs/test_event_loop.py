"""The event loop: what breaks by itself is not shouted about, what is a mistake is."""

from __future__ import annotations

import logging

import pytest

from remuda.cli.programs.event_loop import loop_factory


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionResetError("gone"), False),
        (RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed"), False),
        (RuntimeError("something else"), True),
        (KeyError("protocol"), True),
    ],
)
def test_a_connection_that_breaks_is_nothing_to_shout_about(
    error: Exception, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    loop = loop_factory()()
    try:
        with caplog.at_level(logging.WARNING):
            loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": error, "protocol": object()})
    finally:
        loop.close()
    assert bool(caplog.records) is told


def test_an_abandoned_handshake_is_not_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    def _on_handshake_complete() -> None:
        raise ConnectionResetError

    loop = loop_factory()()
    try:
        with pytest.raises(ConnectionResetError) as caught, caplog.at_level(logging.WARNING):
            _on_handshake_complete()
        loop.call_exception_handler({"message": "Future exception was never retrieved", "exception": caught.value})
    finally:
        loop.close()
    assert not caplog.records


def test_an_error_that_has_nothing_to_do_with_a_connection_is_told(caplog: pytest.LogCaptureFixture) -> None:
    loop = loop_factory()()
    try:
        loop.call_exception_handler({"message": "Task exception was never retrieved", "exception": OSError("disk")})
    finally:
        loop.close()
    assert "Task exception was never retrieved" in caplog.text
