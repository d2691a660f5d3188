"""The support bundle: one archive with the state of a server and no secret in it, made by `remuda support-bundle`
(:mod:`.command`).

Of objects only harmless fields are taken (:mod:`.objects`): names, times, conditions, reasons, never a spec or data.
Free text goes through a :class:`.scrubbing.Scrubber`, which hides what looks like a secret and every value that the server's
Secrets hold. :mod:`.machine` has what is on disk, :mod:`.collector` is the file.

Not here: the checks of the machine that it contains (`..commands.doctor`), the redaction of single values (`kube.redaction`).
Read :mod:`.collector` first.
"""

from __future__ import annotations
