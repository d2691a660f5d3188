"""Users, their passwords and their tokens: how they are kept, made, judged, and cleaned up after.

:mod:`.tokens`, :mod:`.tokenhashes` and :mod:`.passwords` are pure. How a caller shows a token, and how one logs in, is the
gateway's business.
"""
