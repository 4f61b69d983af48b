#!/usr/bin/env bash
# Builds what a node runs (kubelet, kube-proxy, the scheduler, CoreDNS), once, into the user's cache.
# Prints the folder that holds it; with --find it never builds. Modules of their own: tests without nodes need none of it.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
programs=(kubelet kube-proxy kube-scheduler coredns pause)

has_all() { local p; for p in "${programs[@]}"; do [ -x "$1/$p" ] || return 1; done; }

version="$(awk '$2 == "k8s.io/kubernetes" {sub(/^v/, "", $3); print $3; exit} $1 == "k8s.io/kubernetes" {sub(/^v/, "", $2); print $2; exit}' "$here/go.mod")"
[ -n "$version" ] || { echo "go.mod names no version of k8s.io/kubernetes" >&2; exit 2; }
pin="$(cat "$here"/go.{mod,sum} "$here"/../coredns/{go.mod,go.sum,main.go} "$here/pause/main.go" | sha256sum | cut -c1-12)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/ebbtide/kube-tools"
ready="$cache/node-$version-$pin"
if has_all "$ready"; then echo "$ready"; exit 0; fi
if [ "${1:-}" = --find ]; then echo "no programs of a node in $ready" >&2; exit 1; fi

mkdir -p "$cache"
exec 9>"$cache/.node-lock"
flock 9  # two runs on one machine build once
if has_all "$ready"; then echo "$ready"; exit 0; fi
. "$here/../find-go.sh"

echo "building ${programs[*]} into $ready (once, about 6 minutes on two cores)" >&2
rm -rf "$cache"/.node-building-*  # of a build that was killed; Go's own cache has what it compiled
fresh="$(mktemp -d "$cache/.node-building-XXXXXX")"
trap 'rm -rf "$fresh"' EXIT
IFS=. read -r major minor _ <<<"$version"
stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor"
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly
build() { (cd "$here/$1" && "${go[@]}" build -trimpath -ldflags "$flags" -o "$fresh/$2" "$3" >&2); }
build . pause ./pause
build ../coredns coredns .
build . kubelet k8s.io/kubernetes/cmd/kubelet
build . kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
build . kube-proxy k8s.io/kubernetes/cmd/kube-proxy
mv -T "$fresh" "$ready"
trap - EXIT
echo "$ready"
