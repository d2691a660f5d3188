"""What somebody who helps with a server needs to see, in one archive that holds no secret: what `remuda support-bundle` makes.

Of objects only what is known to be harmless is taken (:mod:`.objects`): names, times, conditions, reasons, never a spec or data.
Every text that people or programs wrote goes through a :class:`.scrubbing.Scrubber`, which hides what looks like a secret and
every value that the server's Secrets hold. :mod:`.machine` has what is on disk, :mod:`.archive` is the file.
"""

from __future__ import annotations
