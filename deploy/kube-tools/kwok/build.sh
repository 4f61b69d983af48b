#!/usr/bin/env bash
# Builds kwok, which plays the kubelets of thousands of nodes, once, into the user's cache, and prints where it is; with --find
# it never builds. A module of its own: it does not compile beside the newer libraries of the other programs.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

if [ -n "${KWOK:-}" ]; then echo "$KWOK"; exit 0; fi  # whoever has one says where

version="$(awk '$1 == "sigs.k8s.io/kwok" || $2 == "sigs.k8s.io/kwok" {sub(/.* v/, ""); print $1; exit}' "$here/go.mod")"
pin="$(cat "$here/go.mod" "$here/go.sum" | sha256sum | cut -c1-12)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/ebbtide/kube-tools"
ready="$cache/kwok-$version-$pin"
if [ -x "$ready" ]; then echo "$ready"; exit 0; fi
if [ "${1:-}" = --find ]; then echo "no kwok at $ready" >&2; exit 1; fi

mkdir -p "$cache"
exec 9>"$cache/.kwok-lock"
flock 9  # two runs on one machine build once
if [ -x "$ready" ]; then echo "$ready"; exit 0; fi
. "$here/../find-go.sh"
echo "building kwok $version (once, about 2 minutes on two cores)" >&2
fresh="$(mktemp "$cache/.kwok-XXXXXX")"
trap 'rm -f "$fresh"' EXIT
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly
cd "$here"
"${go[@]}" build -trimpath -ldflags "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=$version" -o "$fresh" sigs.k8s.io/kwok/cmd/kwok >&2
mv -T "$fresh" "$ready"
trap - EXIT
echo "$ready"
