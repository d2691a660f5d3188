"""Access to a Remuda server from the command line: logins, kubeconfigs, clusters and machines as the server has them.

`connection` finds the server and the identity (`login_file`, `server_trust`); `clusters`, `machines` and `orphans` read,
`machine_deletion` and `registration_commands` serve the commands of those names, `shell` opens a shell on a machine.
Not here: how it is drawn (`..views`), the commands (`..commands`), the HTTP client (`client/`).
Read :mod:`.connection`, then :mod:`.machines`.
"""
