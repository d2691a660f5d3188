# Removes the remuda distribution from this host: services, programs, state, and this script.
set -e
[ "$(id -u)" = 0 ] || [ -n "$ROOT" ] || { echo "this must run as root" >&2; exit 1; }
# It is removed as a whole: an error in this script must not remove the whole host.
case "$DATA" in
    / | /etc | /var | /usr | /opt | /home | /root | /var/lib | /usr/local | '' | *..*) echo "refusing to remove $DATA" >&2; exit 1 ;;
esac
"$PREFIX/bin/remuda-killall.sh"
for unit in remuda-server remuda-node; do
    systemctl disable "$unit" >/dev/null 2>&1 || :
    rm -f "$ROOT/etc/systemd/system/$unit.service" "$ROOT/etc/systemd/system/$unit.env"
done
systemctl daemon-reload >/dev/null 2>&1 || :
systemctl reset-failed remuda-server remuda-node >/dev/null 2>&1 || :
if grep -q 'the remuda distribution: ' "$PREFIX/bin/remuda" 2>/dev/null; then rm -f "$PREFIX/bin/remuda"; fi
rm -rf "$DATA" "$ROOT/etc/rancher/remuda" "$ROOT/etc/rancher/node"
rmdir "$ROOT/etc/rancher" "$ROOT/var/lib/rancher" 2>/dev/null || :
rm -f "$PREFIX/bin/remuda-killall.sh" "$PREFIX/bin/remuda-uninstall.sh"
