"""The command: ``sentinel`` is the daemon, ``validate-config`` and ``validate-connection`` check a file for the installer."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
from typing import IO, NoReturn

from . import __version__, log, stage_process
from .ca_trust import CaFollower
from .clock import Clock
from .config import DEFAULT_CONFIG, Config, load_config, load_connection
from .errors import AgentError, ConfigError, Departed
from .local_mode import Local
from .plan_secret import KubeApi, SecretWatch
from .plans.apply import Engine
from .remote_mode import ProgressReporter, Remote
from .selfupdate import AgentProgram
from .stage_process import archive

#: The exit status after which the unit does not start the agent again (`RestartPreventExitStatus=` in install.sh).
DEPARTED = 10
_USAGE = """usage: remuda-agent COMMAND

  sentinel                    follow the plans of this host and apply them
  validate-config FILE        check a configuration (exit 0: good, 1: not)
  validate-connection FILE    check a connection info file (exit 0: good, 1: not)
  check                       check configuration, connection and server on this host (exit 0: yes, 1: no)
  version                     print the version

CATTLE_AGENT_CONFIG names the configuration (default: /etc/rancher/agent/config.yaml)."""


def run() -> NoReturn:
    """Run the process, and end it.

    Threads that wait for the server can't be ended from here, and an interpreter that finalises under them may crash: so the
    process exits without that. All clean-up is done when :func:`main` returns.
    """
    code = 1
    try:
        code = main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:
        log.exception("the agent failed")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status."""
    args = sys.argv[1:] if arguments is None else arguments
    try:
        return _command(args)
    except Departed as reason:
        log.info(str(reason))
        return DEPARTED
    except AgentError as reason:
        print(f"{stage_process.VOICE}{reason}", file=sys.stderr)  # noqa: T201 - this is a command's voice
        return 1


def _command(args: list[str]) -> int:
    if args == ["sentinel"]:
        sentinel()
    elif len(args) == 2 and args[0] == "validate-config":
        load_config(args[1])
    elif len(args) == 2 and args[0] == "validate-connection":
        load_connection(args[1])
    elif args == ["check"]:
        check()
    elif args[:1] == ["stage"] and len(args) == 6:
        stage_process.main(stage_process.StageRequest(*args[1:]))
    elif args in (["version"], ["--version"], ["-v"]):
        print(f"remuda-agent {__version__}")  # noqa: T201
    else:
        print(_USAGE, file=sys.stdout if args in (["--help"], ["-h"]) else sys.stderr)
        return 0 if args in (["--help"], ["-h"]) else 1
    return 0


def sentinel() -> None:
    """The daemon."""
    config = _config()
    log.start(os.environ.get("CATTLE_LOGLEVEL", "info"))
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    clock, stop = Clock(), threading.Event()
    progress = ProgressReporter(clock)
    engine = Engine(config, clock, progress.say)
    lock = _only_one(config)
    try:
        engine.interlock.clear_stale()
        program = AgentProgram(archive(), stop, os.path.join(_state(config), "successors"))
        if config.remote_enabled:
            if config.local_enabled:
                threading.Thread(target=Local(engine, config.local_plan_directory, clock, stop).run, daemon=True).start()
            _remote(config, engine, clock, stop, progress, program)
        else:
            Local(engine, config.local_plan_directory, clock, stop).run()
    finally:
        stop.set()
        lock.close()


def check() -> None:
    """The check that a running agent makes of its successor: all that the daemon does before it follows a plan."""
    config = _config()
    if config.remote_enabled:
        connection = load_connection(config.connection_info_file)
        api = KubeApi(connection.kube_config, _strict())
        api.check()
        api.get(connection.namespace, connection.secret_name)


def _config() -> Config:
    config = load_config(os.environ.get("CATTLE_AGENT_CONFIG") or DEFAULT_CONFIG)
    if os.geteuid() != 0 and config.root == "/":
        raise ConfigError("the agent must run as root, unless its host is a directory (root)")
    return config


def _strict() -> bool:
    return os.environ.get("CATTLE_AGENT_STRICT_VERIFY", "").lower() == "true"


def _state(config: Config) -> str:
    return os.path.dirname(os.path.abspath(config.work_directory))


def _remote(
    config: Config, engine: Engine, clock: Clock, stop: threading.Event, progress: ProgressReporter, program: AgentProgram
) -> None:
    connection = load_connection(config.connection_info_file)
    api = KubeApi(connection.kube_config, _strict())
    log.info(f"remuda-agent {__version__}, server {api.url.netloc}, version {api.check()}")
    progress.start(api, stop)
    trusting = CaFollower(api, config.connection_info_file, clock, stop)
    trusting.start()
    watch = SecretWatch(api, connection.namespace, connection.secret_name, clock, stop)
    program.wake = watch.wake
    watch.start()

    def about() -> bytes:
        return program.about(trusting.trusted())

    Remote(engine, api, watch, clock, stop, settled=program.check, about=about, noticed=trusting.notice).run()


def _leave(number: int, frame: object) -> None:
    # A running command is killed on the way out; its journal lets the next agent continue from there.
    raise SystemExit(0)


def _only_one(config: Config) -> IO[str]:
    state = _state(config)
    os.makedirs(state, mode=0o755, exist_ok=True)
    lock = open(os.path.join(state, "agent.lock"), "w", encoding="utf-8")  # noqa: SIM115 - held as long as the agent runs
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as reason:
        lock.close()
        raise ConfigError("another agent runs on this host already") from reason
    return lock
