"""Time travel: objects and lists at a past moment, and the life of one object.

`past` answers requests with `past=`, `moments` finds the revision that is meant, `rights` since when the caller may see it,
`changes` what a step changed.
The rows are kept by `storage/sqlite/history`; who wrote is noted in `storage/store`. Begin with `past`.
"""
