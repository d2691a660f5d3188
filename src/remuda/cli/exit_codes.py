"""The ends of a command: an exit code, and on failure one clear sentence on stderr. Never a traceback.

(Unless `REMUDA_DEBUG=1` asks for it.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import TextIO

import click


class Code(IntEnum):
    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    NOT_ALLOWED = 5
    TIMEOUT = 124
    INTERRUPTED = 130


class Failure(Exception):
    """A command that can't do what it was asked. The message is a whole sentence without its full stop."""

    def __init__(self, message: str, code: Code = Code.FAILURE) -> None:
        super().__init__(message)
        self.code = code


def run(command: click.Command, arguments: Sequence[str] | None = None, program: str = "remuda") -> int:
    """Run a command line; the exit code. Whatever was raised has been said. `program` is how it was called."""
    debug = os.environ.get("REMUDA_DEBUG") == "1"
    try:
        result = command.main(args=arguments, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else Code.OK
    except click.exceptions.NoArgsIsHelpError as error:
        error.show(sys.stderr)
        return Code.USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else program
        return _say(f"{_sentence(error.format_message())} (see {path} --help)", Code.USAGE)
    except click.ClickException as error:
        return _say(error.format_message(), Code.FAILURE)
    except (KeyboardInterrupt, click.Abort):
        return Code.INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`| head`). Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Code.FAILURE
    except Exception as error:
        if debug:
            raise
        return _say(*explain(error))


def explain(error: Exception) -> tuple[str, Code]:
    """The sentence and the code for anything a command may raise."""
    from remuda.client.kubeconfig import ConfigError
    from remuda.kube.errors import ApiError

    if isinstance(error, Failure):
        return str(error), error.code
    if isinstance(error, ApiError):
        return _with_advice(error.message), _api_code(error)
    if isinstance(error, ConfigError):
        return str(error), Code.FAILURE
    if isinstance(error, TimeoutError):
        return str(error) or "it took too long", Code.TIMEOUT
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror, Code.FAILURE
    return f"internal error: {type(error).__name__}: {error} (REMUDA_DEBUG=1 shows where)", Code.FAILURE


def _with_advice(message: str) -> str:
    """Errors that users meet first, with their remedies: a server that does not run, and one that is not Remuda."""
    if message.endswith("can't be reached: Connection refused"):
        return f"{message}; nothing listens there: start the server, or correct the address"
    if message == "the server could not find the requested resource":
        return f"{message}: it is not Remuda, or serves only its API; select another with --login or --kubeconfig"
    return message


def _api_code(error: object) -> Code:
    from remuda.kube.errors import ApiError

    assert isinstance(error, ApiError)
    if error.is_not_found:
        return Code.NOT_FOUND
    if error.code == 409:
        return Code.CONFLICT
    if error.code in (401, 403):
        return Code.NOT_ALLOWED
    return Code.TIMEOUT if error.code == 504 else Code.FAILURE


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    return text[:1].lower() + text[1:] if not text[:2].isupper() else text


def _say(message: str, code: Code, stream: TextIO | None = None) -> Code:
    line = " ".join(message.split())
    print(f"remuda: {line}", file=stream or sys.stderr)
    return code
