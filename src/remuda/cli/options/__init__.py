"""Options that several commands share, and what they mean: listening, certificates, etcd, controllers, places on disk.

Options of one command stand with that command.
No server code at import.
Read :mod:`.locations`.
"""
