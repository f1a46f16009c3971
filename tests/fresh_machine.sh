#!/usr/bin/env bash
# Follow docs/operations.md, "One machine with systemd", on a fresh root: REPOSITORY VENV|-
#
# Called by tests/test_fresh_machine.py in a mount and a process namespace of its own, on a copy of the machine's root
# that forgets everything (overlay). What the chapter says is run as it stands; `systemctl` is a script that starts the
# ExecStart lines of the units with their user and environment. VENV: folder that stands for `make install`; -: install.
set -euo pipefail
repository=$1 venv=$2 here=$(dirname "$(readlink -f "$0")")
fresh=$(mktemp -d)
mount -t tmpfs -o size=12g tmpfs "$fresh"
mkdir "$fresh"/{up,work,system}
mount -t overlay overlay -o "lowerdir=/,upperdir=$fresh/up,workdir=$fresh/work" "$fresh/system"
mount --rbind /dev "$fresh/system/dev"
mount -t proc proc "$fresh/system/proc"
mount -t tmpfs tmpfs "$fresh/system/tmp"
mkdir "$fresh/system/tmp/repository"
mount --bind "$repository" "$fresh/system/tmp/repository"
rm -rf "$fresh/system"/{opt/ipate,etc/ipate,var/lib/ipate*,var/backups/ipate,etc/nginx/sites-enabled/*}
install -m 755 "$here/fresh_systemctl.py" "$fresh/system/usr/local/bin/systemctl"
chmod o+x "$fresh/system/root"

# Lines of the chapter's commands, without remarks.
python3 - "$repository/docs/operations.md" "$venv" > "$fresh/system/tmp/commands" <<'PYTHON'
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
block = re.search(r"## One machine with systemd\n\n```\n(.*?)```", text, re.DOTALL)[1]
block = block.replace("git clone …", "git clone --quiet file:///tmp/repository")
if sys.argv[2] != "-":
    block = block.replace("make install", f"ln -s {sys.argv[2]} .venv && .venv/bin/python -m ipate_web.catalogues")
print("set -euxo pipefail\n" + re.sub(r"   # .*", "", block))
PYTHON
split() { sed -n "$1" "$fresh/system/tmp/commands"; }
last=$(grep -n "environment.example" "$fresh/system/tmp/commands" | cut -d: -f1)
{ split "1,${last}p"; } > "$fresh/system/tmp/install"
{ echo "set -euxo pipefail; cd /opt/ipate"; split "$((last + 1)),\$p"; } > "$fresh/system/tmp/start"

# Filling in, and what Debian's packages of PostgreSQL, Redis and nginx leave running.
cat > "$fresh/system/tmp/fill" <<'FILL'
set -euxo pipefail
cd /opt/ipate
sed -i "s|^IPATE_SECRET_KEY=.*|IPATE_SECRET_KEY=$(openssl rand -hex 32)|" /etc/ipate/environment
install -d -o ipate -g ipate -m 700 /var/lib/ipate
public=$(ipate backup_key /root/backups.key | grep -o 'age1[a-z0-9]*')
sed -i "s|^IPATE_BACKUP_RECIPIENT=.*|IPATE_BACKUP_RECIPIENT=$public|" /etc/ipate/environment
sed -i "s|^IPATE_MAIL=.*|IPATE_MAIL=file:///var/lib/ipate/mail|" /etc/ipate/environment
FILL
cat > "$fresh/system/tmp/servers" <<'SERVERS'
set -euxo pipefail
ip link set lo up
postgresql=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
id postgres >/dev/null 2>&1 || adduser --system --group postgres
install -d -o postgres -m 700 /var/lib/fresh-postgresql && install -d -o postgres /var/run/postgresql
as="setpriv --reuid postgres --regid postgres --init-groups"
$as "$postgresql/initdb" -D /var/lib/fresh-postgresql -A trust >/dev/null
$as "$postgresql/pg_ctl" -w -D /var/lib/fresh-postgresql -l /var/lib/fresh-postgresql/log start >/dev/null
$as "$postgresql/psql" -h 127.0.0.1 -q -c "CREATE ROLE ipate LOGIN PASSWORD 'password'" -c "CREATE DATABASE ipate OWNER ipate"
redis-server --daemonize yes --save '' --dir /tmp >/dev/null
install -d /etc/letsencrypt/live/ipate.example
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ipate.example -addext subjectAltName=DNS:ipate.example \
    -keyout /etc/letsencrypt/live/ipate.example/privkey.pem -out /etc/letsencrypt/live/ipate.example/fullchain.pem 2>/dev/null
cp /opt/ipate/deploy/nginx.conf /etc/nginx/conf.d/ipate.conf
nginx
SERVERS
cat > "$fresh/system/tmp/look" <<'LOOK'
set -euo pipefail
asked="curl --silent --fail --max-time 60 --cacert /etc/letsencrypt/live/ipate.example/fullchain.pem --resolve ipate.example:443:127.0.0.1"
for try in $(seq 300); do
    state=$(curl --silent --max-time 60 -H 'Host: ipate.example' -H 'X-Forwarded-Proto: https' http://127.0.0.1:8000/readyz || true)
    case $state in *'"status": "ready"'*) break ;; esac
    sleep 2
done
echo "readyz: $state"
case $state in *'"status": "ready"'*) ;; *) tail -n 30 /var/log/fresh-*.log; exit 1 ;; esac
echo "healthz: $($asked https://ipate.example/healthz)"
$asked https://ipate.example/ >/dev/null && echo "page: served by nginx"
systemctl start ipate-backup && ls /var/backups/ipate
ipate verify_ledger
ipate check --deploy
LOOK
chroot "$fresh/system" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    ${PIP_EXTRA_INDEX_URL:+PIP_EXTRA_INDEX_URL=$PIP_EXTRA_INDEX_URL} bash -c "bash /tmp/install && bash /tmp/fill"
# From here on without a way out: the ports are its own.
unshare --net chroot "$fresh/system" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    bash -c "bash /tmp/servers && bash /tmp/start && bash /tmp/look"
echo "THE FRESH MACHINE IS WHOLE"
