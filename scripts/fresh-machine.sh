#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a newcomer meets: a bare Debian with python3, python3-venv, make and git, a clone, `make demo`, `make test`, and how long each took.
#
#   sudo scripts/fresh-machine.sh                        all of it in a temporary directory, removed afterwards
#   sudo scripts/fresh-machine.sh --root DIR             keep the Debian in DIR; the next run starts from it, with a new clone
#   sudo scripts/fresh-machine.sh --root DIR --prepare   make the Debian, and stop
#   sudo scripts/fresh-machine.sh demo                   these targets of the Makefile only
#
# Needs root, unshare, and mmdebstrap or debootstrap. What is cloned is the HEAD of this repository.
# Settings, from the environment:
#   DEBIAN_MIRROR   where Debian comes from; default: where this machine's apt gets it
#   DEBIAN_SUITE    default: bookworm
#   PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST, PIP_CERT, PIP_DEFAULT_TIMEOUT, http_proxy, https_proxy, no_proxy
#                   handed to the new machine; PIP_CERT is copied into it
# May not: change anything outside its directory, or use anything of this machine but kernel, network and settings above.
set -euo pipefail

SUITE=${DEBIAN_SUITE:-bookworm}
PACKAGES=python3,python3-venv,make,git
NEWCOMER=newcomer
REPOSITORY=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)

usage() { sed -n '3,9s/^# \{0,1\}//p' "$0"; }

fail() {
    echo "fresh-machine: $*" >&2
    exit 2
}

# --- arguments -------------------------------------------------------------------------------------

root='' prepare_only='' targets=()
while [ $# -gt 0 ]; do
    case $1 in
    --root)
        [ $# -ge 2 ] || fail "--root needs a directory"
        root=$2
        shift
        ;;
    --prepare) prepare_only=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    -*) fail "$1 is not an option; try --help" ;;
    *) targets+=("$1") ;;
    esac
    shift
done
[ ${#targets[@]} -gt 0 ] || targets=(demo test)
[ "$(id -u)" = 0 ] || fail "a new root file system can only be made by root: sudo $0"

if [ -z "$root" ]; then
    root=$(mktemp -d --suffix=-fresh-machine)
    trap 'rm -rf --one-file-system "$root"' EXIT
fi

# --- a bare Debian ---------------------------------------------------------------------------------

mirror_of_apt() {
    # shellcheck disable=SC2016 # apt fills in $(REPO_URI), not the shell.
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $SUITE" 2>/dev/null | head -n 1
}

make_debian() {
    local mirror=${DEBIAN_MIRROR:-$(mirror_of_apt)}
    [ -n "$mirror" ] || fail "no mirror for $SUITE in apt's settings: set DEBIAN_MIRROR"
    if command -v mmdebstrap >/dev/null; then
        mmdebstrap --quiet --variant=minbase --include="$PACKAGES" "$SUITE" "$root" "$mirror"
    elif command -v debootstrap >/dev/null; then
        debootstrap --variant=minbase --include="$PACKAGES" "$SUITE" "$root" "$mirror" >"$root.log" || fail "see $root.log"
        rm -f "$root.log"
    else
        fail "needs mmdebstrap or debootstrap: apt-get install debootstrap"
    fi
    chroot "$root" useradd --create-home --shell /bin/bash "$NEWCOMER"
    touch "$root/.fresh-machine"
}

# --- inside ----------------------------------------------------------------------------------------

settings() {
    echo "HOME=/home/$NEWCOMER" "USER=$NEWCOMER" PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 TERM=dumb
    local name
    for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_DEFAULT_TIMEOUT http_proxy https_proxy no_proxy; do
        [ -z "${!name:-}" ] || echo "$name=${!name}"
    done
    [ -z "${PIP_CERT:-}" ] || echo PIP_CERT=/etc/ssl/pip-cert.pem
}

inside() { # Run a line of shell as the newcomer: own mounts, own processes; all of them end with it.
    # shellcheck disable=SC2046 # One word per setting is meant.
    unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" bash -c '
        set -e
        root=$1 newcomer=$2; shift 2
        mount -t tmpfs -o mode=755 tmpfs "$root/dev"
        for each in null zero full random urandom tty; do touch "$root/dev/$each"; mount --bind "/dev/$each" "$root/dev/$each"; done
        ln -s /proc/self/fd "$root/dev/fd"
        mkdir "$root/dev/shm" "$root/dev/pts"
        mount -t tmpfs tmpfs "$root/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
        ln -s pts/ptmx "$root/dev/ptmx"
        exec chroot "$root" runuser -u "$newcomer" -- env -i "$@"
    ' bash "$root" "$NEWCOMER" $(settings) bash -c "$1" </dev/null
}

now() { date +%s.%N; }

since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }

# --- the run ---------------------------------------------------------------------------------------

started=$(now)
if [ -e "$root/.fresh-machine" ]; then
    echo "==> Debian in $root is there already"
else
    echo "==> Debian $SUITE with $PACKAGES in $root"
    make_debian
    echo "==> Debian took $(since "$started") s"
fi
# What an installer writes, and a bootstrapped tree lacks.
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
if [ -n "${PIP_CERT:-}" ]; then
    install -D -m 644 "$PIP_CERT" "$root/etc/ssl/pip-cert.pem"
fi
[ -z "$prepare_only" ] || exit 0

! chroot "$root" sh -c 'command -v java gcc pip' >/dev/null || fail "$root is not bare: it has java, gcc or pip"
inside "rm -rf ~/oncemq ~/.cache ~/.local"
git -C "$REPOSITORY" bundle create --quiet "$root/tmp/oncemq.bundle" HEAD
chmod 644 "$root/tmp/oncemq.bundle"
started=$(now)
inside "git -c advice.detachedHead=false clone --quiet /tmp/oncemq.bundle ~/oncemq"
rows=("git clone|$(since "$started")|ok")

status=0
for target in "${targets[@]}"; do
    echo "==> make $target"
    started=$(now)
    if inside "cd ~/oncemq && make $target"; then outcome=ok; else outcome=FAILED status=1; fi
    seconds=$(since "$started")
    ready="$root/home/$NEWCOMER/oncemq/.venv/.ready"
    if [ ${#rows[@]} = 1 ] && [ -e "$ready" ]; then
        rows+=("set-up, by make $target|$(awk -v a="$started" -v b="$(stat -c %.9Y "$ready")" 'BEGIN { printf "%.1f", b - a }')|ok")
    fi
    rows+=("make $target|$seconds|$outcome")
done

echo
printf '%s\n' "${rows[@]}" | awk -F'|' '{ printf "%-24s %8s s   %s\n", $1, $2, $3 }'
exit $status
