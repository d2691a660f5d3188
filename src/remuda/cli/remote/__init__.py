"""Access to a Remuda server from the command line: logins, kubeconfigs, clusters and machines as the server has them.

:mod:`.connection` finds the server and the identity (:mod:`.login_file`, :mod:`.server_trust`); :mod:`.clusters`,
:mod:`.machines` and :mod:`.orphans` read and change objects, :mod:`.shell` opens a shell on a machine. Not here: how it is drawn
(`..views`), the commands (`..commands`), the HTTP client (`client/`). Read :mod:`.connection`, then :mod:`.clusters`.
"""
