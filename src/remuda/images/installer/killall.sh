# Stops the remuda distribution on this host and everything that it started; what it has on disk stays.
for unit in remuda-server remuda-node; do
    systemctl stop "$unit" >/dev/null 2>&1 || :
    # What a killed service may have left.
    systemctl kill --signal=SIGKILL "$unit" >/dev/null 2>&1 || :
done
