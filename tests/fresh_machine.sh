#!/usr/bin/env bash
# Follow docs/install.md, "One machine with systemd" and "Signed checkpoints", on a fresh machine: REPOSITORY VENV|-
#
# tests/test_deploy.py runs this as root. The machine is a temporary copy of this one's files (overlay) with separate
# mounts, network, processes and systemd. The commands of these sections are run unchanged.
# VENV: folder whose packages replace those of `make install`; -: install.
set -euo pipefail
repository=$1 venv=$2
# systemd counts and limits processes in control groups, here below a separate group of this process.
if [ "${3:-}" != inside ]; then
    groups=()
    while IFS=: read -r _ kind path; do
        case $kind in
            name=systemd | memory | pids) groups+=("/sys/fs/cgroup/${kind#name=}$path/fresh-$$") ;;
            "") grep -q :name=systemd: /proc/self/cgroup || groups+=("/sys/fs/cgroup$path/fresh-$$") ;;
        esac
    done < /proc/self/cgroup
    fresh=$(mktemp -d)
    mkdir "${groups[@]}"
    trap 'sleep 2; find "${groups[@]}" -depth -type d -exec rmdir {} +; rmdir "$fresh"' EXIT
    (for group in "${groups[@]}"; do echo "$BASHPID" > "$group/cgroup.procs"; done
        exec unshare --mount --cgroup bash "$0" "$repository" "$venv" inside "$fresh")
    exit
fi
fresh=$4
mount -t tmpfs -o size=12g tmpfs "$fresh"
mkdir "$fresh"/{up,work,system}
mount -t overlay overlay -o "lowerdir=/,upperdir=$fresh/up,workdir=$fresh/work" "$fresh/system"
cd "$fresh/system"
for folder in tmp run dev; do mount -t tmpfs -o mode=755 tmpfs $folder; done
mkdir -p dev/{pts,shm} fresh/{repository,around}
chmod 1777 tmp dev/shm
for device in null zero full random urandom tty; do touch dev/$device && mount --bind /dev/$device dev/$device; done
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t proc proc proc
mount --bind "$repository" fresh/repository
if [ "$venv" != - ]; then  # it may be under /tmp
    mkdir -p ".$venv"
    mount --bind "$venv" ".$venv"
fi
rm -rf {opt/ipate,etc/ipate,var/lib/ipate*,var/backups/ipate,etc/nginx/sites-enabled/*,etc/systemd/system/*.wants}
if grep -q :name=systemd: /proc/self/cgroup; then
    mount -t sysfs -o ro sysfs sys && mount -t tmpfs tmpfs sys/fs/cgroup
    for kind in systemd memory pids; do
        mkdir sys/fs/cgroup/$kind
        mount -t cgroup -o "$([ $kind = systemd ] && echo none,name=systemd || echo $kind)" cgroup sys/fs/cgroup/$kind
    done
else
    mount -t sysfs -o ro sysfs sys && mount -t cgroup2 cgroup sys/fs/cgroup
fi

cat > fresh/commands.py <<'PYTHON'
"""Print the first commands of a chapter, without remarks: CHAPTER VENV|-"""
import re, sys
chapter, venv = sys.argv[1:]
text = open("/fresh/repository/docs/install.md", encoding="utf-8").read()
block = re.search(rf"\n## {chapter}\n.*?```\n(.*?)```", text, re.DOTALL)[1]
block = block.replace("git clone …", "git clone --quiet file:///fresh/repository")
if venv != "-":
    block = block.replace("make install", f". /fresh/given {venv}")
print(re.sub(r"   # .*|^ +", "", block, flags=re.MULTILINE))
PYTHON
cat > fresh/given <<'GIVEN'
# Units cannot access home folders, where Python may be.
install -d /opt/python
mount --bind "$("$1/bin/python" -c 'import sys; print(sys.base_prefix)')" /opt/python
echo /opt/python/lib > /etc/ld.so.conf.d/0-python.conf && ldconfig
/opt/python/bin/python3 -m venv --without-pip .venv
mount --bind "$1"/lib/python3.*/site-packages .venv/lib/python3.*/site-packages
for program in gunicorn celery; do
    sed "1s|.*|#!$PWD/.venv/bin/python|" "$1/bin/$program" > .venv/bin/$program && chmod +x .venv/bin/$program
done
.venv/bin/python -m ipate_web.catalogues
GIVEN
commands() { chroot . python3 /fresh/commands.py "$@"; }
commands "One machine with systemd" "$venv" > fresh/all
last=$(grep -n "environment.example" fresh/all | cut -d: -f1)
sed -n "1,${last}p" fresh/all > fresh/install
sed "1,${last}d" fresh/all > fresh/start
commands "Signed checkpoints" - > fresh/checkpoints

# Fill in the environment file, and start the servers that Debian's packages of PostgreSQL, Redis and nginx start.
cat > fresh/fill <<'FILL'
sed -i "s|^IPATE_SECRET_KEY=.*|IPATE_SECRET_KEY=$(openssl rand -hex 32)|" /etc/ipate/environment
install -d -o ipate -g ipate -m 700 /var/lib/ipate
public=$(ipate backup_key ~/backups.key | grep -o 'age1[a-z0-9]*')
sed -i "s|^IPATE_BACKUP_RECIPIENT=.*|IPATE_BACKUP_RECIPIENT=$public|" /etc/ipate/environment
FILL
cat > fresh/servers <<'SERVERS'
ip link set lo up
postgresql=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
id postgres >/dev/null 2>&1 || adduser --system --group postgres
install -d -o postgres -m 700 /var/lib/fresh-postgresql && install -d -o postgres /var/run/postgresql
as="setpriv --reuid postgres --regid postgres --init-groups"
$as "$postgresql/initdb" -D /var/lib/fresh-postgresql -A trust >/dev/null
$as "$postgresql/pg_ctl" -w -D /var/lib/fresh-postgresql -l /var/lib/fresh-postgresql/log start >/dev/null
redis-server --daemonize yes --save '' --dir /tmp >/dev/null
install -d /etc/letsencrypt/live/ipate.example
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ipate.example -addext subjectAltName=DNS:ipate.example \
    -keyout /etc/letsencrypt/live/ipate.example/privkey.pem -out /etc/letsencrypt/live/ipate.example/fullchain.pem 2>/dev/null
nginx
echo 127.0.0.1 ipate.example >> /etc/hosts
SERVERS
# For `ipate shell`: a person decides in the browser, and a run uses the API. Installations contain no tests to import.
cat > fresh/study.py <<'STUDY'
import re
import ssl
import time

import httpx

from consent import services
from consent.models import ConsentEvent, DataHolder
from ipate_web.tokens.models import ApiToken
from learning.formats import catalogue_load
from training.demonstration import consents_give, demo_study, people
from training.services.datasets import dataset_import
from training.services.drawings import head_counts_draw

SITE = "https://ipate.example"
trusted = ssl.create_default_context(cafile="/etc/letsencrypt/live/ipate.example/fullchain.pem")
users, logins = people()
study, splits = demo_study("digits", users), catalogue_load("digits")
datasets = {
    f"{kind}_dataset": dataset_import(study=study, name=kind, kind=kind, rows=rows, schema=splits.schema).pk
    for kind, rows in (("private", splits.private[:300]), ("public", splits.public[:60]), ("test", splits.test))
}
holder = DataHolder.objects.filter(study=study).earliest("pk")
services.holder_link(holder=holder, user=users["holder"])

with httpx.Client(base_url=SITE, verify=trusted, headers={"Referer": f"{SITE}/"}, timeout=300) as browser:

    def send(page: str, path: str, **fields: str) -> None:
        """Send the form of a page, with what it holds already."""
        held = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', browser.get(page).text))
        answer = browser.post(path, data=held | fields)
        assert answer.status_code == 302, (path, answer.status_code, answer.text)

    send("/sign-in/", "/sign-in/", login="demo-holder", password=logins[0].password)
    send(f"/my/{study.slug}/", f"/my/{study.slug}/decide/", choice="AVERAGE")
assert ConsentEvent.objects.get(holder=holder).level == "AVERAGE"
consents_give(study, users["holder"], lambda rows, _description, _total: rows)
head_counts_draw(study=study, acting_user=users["operator2"])


def api(user: str, method: str, path: str, body: object = None) -> dict:
    """The answer of the API to a user's program."""
    secret = ApiToken.objects.create(users[user], name=str(time.time_ns()))[1]
    headers = {"Authorization": f"Bearer {secret}"}
    answer = httpx.request(method, f"{SITE}/api/v1{path}", json=body, headers=headers, verify=trusted, timeout=600)
    assert answer.is_success, answer.text
    return answer.json()


wish = {"study": study.slug, "title": "Fresh", "method": "neighbours", "choices": {"rounds": 1}}
run = api("operator", "POST", "/runs", wish | datasets | {"student_learner": "nearest_neighbour"})
api("operator2", "POST", f"/runs/{run['id']}/approve", {"share": 0.5})
for _ in range(600):
    run = api("operator", "GET", f"/runs/{run['id']}")
    if run["status"] in ("finished", "failed"):
        break
    time.sleep(2)
assert run["status"] == "finished" and run["labels"], run
STUDY
cat > fresh/look <<'LOOK'
asked="curl --silent --fail --max-time 60 --cacert /etc/letsencrypt/live/ipate.example/fullchain.pem --resolve ipate.example:443:127.0.0.1"
ready() {
    for try in $(seq 150); do
        state=$(curl --silent --max-time 60 -H 'Host: ipate.example' -H 'X-Forwarded-Proto: https' http://127.0.0.1:8000/readyz || true)
        case $state in *'"status": "ready"'*) echo "readyz: $state"; return ;; esac
        sleep 2
    done
    echo "not ready: $state"
    false
}
ready
echo "healthz: $($asked https://ipate.example/healthz)"
$asked https://ipate.example/ >/dev/null && echo "page: served by nginx"
for unit in web holders worker beat; do systemctl is-active "ipate-$unit"; done
# A study is asked, a person consents in the browser, and a run finishes.
ipate shell -v0 -c "$(cat /fresh/study.py)"
echo "A person has decided, and a run has finished."
systemctl start ipate-backup && ls /var/backups/ipate
ipate verify_ledger
# A unit has enough permissions, and the process that reads uploads is confined in it.
sed 's|^ExecStart=.*|ExecStart=/opt/ipate/ipate check --deploy --fail-level WARNING|; s|^Restart=.*|Type=oneshot|' \
    /etc/systemd/system/ipate-worker.service > /etc/systemd/system/ipate-checked.service
systemctl daemon-reload
systemctl start ipate-checked
# A worker that is killed is started again.
worker=$(systemctl show --property MainPID --value ipate-worker)
systemctl kill --kill-whom main --signal KILL ipate-worker
for try in $(seq 60); do
    now=$(systemctl show --property MainPID --value ipate-worker)
    [ "$now" != 0 ] && [ "$now" != "$worker" ] && break
    sleep 1
done
[ "$now" != "$worker" ]
ready
systemctl reload ipate-web
ready
LOOK
cat > fresh/look_at_checkpoints <<'LOOK'
echo "IPATE_CHECKPOINT_KEYS=$(tail -1 /fresh/checkpoints.said)" >> /etc/ipate/environment
systemctl start ipate-checkpoint
systemctl list-timers --all --no-pager | grep ipate
systemctl stop ipate.target ipate-web ipate-holders ipate-worker ipate-beat
for unit in web holders worker beat backup checkpoint; do
    [ $(systemctl show --property Result --value "ipate-$unit") = success ]
done
LOOK
clean=(env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root)
chroot . "${clean[@]}" ${PIP_EXTRA_INDEX_URL:+PIP_EXTRA_INDEX_URL=$PIP_EXTRA_INDEX_URL} \
    bash -euxc "cd /; . /fresh/install; . /fresh/fill"
# From here on, the machine has no access to other networks, and separate ports.
boot='pivot_root . fresh/around && umount -l fresh/around && mount --make-rshared / && exec /lib/systemd/systemd'
unshare --mount --pid --net --uts --ipc --fork --kill-child --mount-proc="$fresh/system/proc" "${clean[@]}" \
    container=fresh bash -c "$boot --show-status=no" &
trap 'kill -KILL $!; wait' EXIT
for try in $(seq 60); do [ -S run/systemd/private ] && break; sleep 1; done
inside=(nsenter --target "$(pgrep --parent $!)" --mount --pid --net --uts --ipc "${clean[@]}")
for step in "cd /opt/ipate; . /fresh/servers; . /fresh/start" ". /fresh/look" \
    ". /fresh/checkpoints > /fresh/checkpoints.said; . /fresh/look_at_checkpoints"; do
    "${inside[@]}" bash -euxc "trap 'journalctl --no-pager --lines 60' ERR; $step"
done
echo "THE FRESH MACHINE IS WHOLE"
