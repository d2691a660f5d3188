"""What goes wrong with backups; each is one sentence for an operator."""

from __future__ import annotations


class BackupError(Exception):
    """A backup that can't be made or restored; the message says what to do."""


class NotABackup(BackupError):
    """The file is something else."""


class Damaged(BackupError):
    """The file is not as it was written."""


class WrongPassphrase(BackupError):
    """The file is whole, but sealed with another passphrase."""


class TooNew(BackupError):
    """A format that a later Remuda writes."""


class NotEmpty(BackupError):
    """The place to restore into holds something already."""


class InUse(BackupError):
    """A server runs on the place to restore into."""
