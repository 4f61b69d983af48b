#!/usr/bin/env bash
# Builds helm once, into the user's cache, and prints where it is; with --find it never builds.
# A module of its own: helm's libraries are newer than those of the other programs.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

if [ -n "${HELM:-}" ]; then echo "$HELM"; exit 0; fi  # whoever has one says where

version="$(awk '$1 == "helm.sh/helm/v3" || $2 == "helm.sh/helm/v3" {sub(/.* v/, ""); print $1; exit}' "$here/go.mod")"
pin="$(cat "$here/go.mod" "$here/go.sum" | sha256sum | cut -c1-12)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/ebbtide/kube-tools"
ready="$cache/helm-$version-$pin"
if [ -x "$ready" ]; then echo "$ready"; exit 0; fi
if [ "${1:-}" = --find ]; then echo "no helm at $ready" >&2; exit 1; fi

mkdir -p "$cache"
exec 9>"$cache/.helm-lock"
flock 9  # two runs on one machine build once
if [ -x "$ready" ]; then echo "$ready"; exit 0; fi
. "$here/../find-go.sh"
echo "building helm $version (once, about 2 minutes on two cores)" >&2
fresh="$(mktemp "$cache/.helm-XXXXXX")"
trap 'rm -f "$fresh"' EXIT
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly
cd "$here"
# What charts are rendered for where no cluster is asked: the version of the libraries.
minor="$(awk '$1 == "k8s.io/client-go" {split($2, v, "."); print v[2]}' go.mod)"
flags="-s -w -X helm.sh/helm/v3/internal/version.version=v$version"
for place in chartutil lint/rules; do
    flags+=" -X helm.sh/helm/v3/pkg/$place.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$place.k8sVersionMinor=$minor"
done
"${go[@]}" build -trimpath -ldflags "$flags" -o "$fresh" helm.sh/helm/v3/cmd/helm >&2
mv -T "$fresh" "$ready"
trap - EXIT
echo "$ready"
