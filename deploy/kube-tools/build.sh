#!/usr/bin/env bash
# Builds the Kubernetes programs that the tests run against, once, into the user's cache.
# Prints the folder that holds them and nothing else on stdout; with --find it never builds. go.mod pins every version and
# go.sum every byte, so the folder is named by their hash and never has to be looked at again.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
programs=(kube-apiserver etcd kubectl kube-controller-manager)

has_all() { local p; for p in "${programs[@]}"; do [ -x "$1/$p" ] || return 1; done; }

# Whoever has the programs already says where, as for every other envtest.
if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
    has_all "$KUBEBUILDER_ASSETS" || {
        echo "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS lacks one of: ${programs[*]}" >&2; exit 2; }
    echo "$KUBEBUILDER_ASSETS"; exit 0
fi

version="$(awk '$1 == "k8s.io/kubernetes" || $2 == "k8s.io/kubernetes" {sub(/.* v/, ""); print $1; exit}' "$here/go.mod")"
[ -n "$version" ] || { echo "go.mod names no version of k8s.io/kubernetes" >&2; exit 2; }
pin="$(cat "$here/go.mod" "$here/go.sum" | sha256sum | cut -c1-12)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/ebbtide/kube-tools"
ready="$cache/$version-$pin"
if has_all "$ready"; then echo "$ready"; exit 0; fi

if [ "${1:-}" = --find ]; then echo "no Kubernetes programs in $ready" >&2; exit 1; fi

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9  # two runs on one machine build once
if has_all "$ready"; then echo "$ready"; exit 0; fi

. "$here/find-go.sh"

echo "building ${programs[*]} $version into $ready (once, about 10 minutes on two cores)" >&2
rm -rf "$cache"/.building-*  # of a build that was killed; Go's own cache has what it compiled
fresh="$(mktemp -d "$cache/.building-XXXXXX")"
trap 'rm -rf "$fresh"' EXIT
IFS=. read -r major minor _ <<<"$version"
stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor"
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly
cd "$here"
build() { "${go[@]}" build -trimpath -ldflags "$flags" -o "$fresh/$1" "$2" >&2; }
build etcd go.etcd.io/etcd/server/v3
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build kubectl k8s.io/kubernetes/cmd/kubectl
build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
mv -T "$fresh" "$ready"
trap - EXIT
echo "$ready"
