"""Random lives of clusters after their first day: snapshots, restores, recoveries, rotations and upgrades, with faults.

A number makes a cluster (:mod:`.shapes`), acts (:mod:`.stories`) and faults (:mod:`.faults`); :mod:`.laws` says what
must hold at any time.
"""
