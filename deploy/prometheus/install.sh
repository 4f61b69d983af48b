#!/usr/bin/env bash
# Has prometheus and promtool on this machine, which tests of metrics, rules and dashboards start.
set -euo pipefail
command -v prometheus >/dev/null && command -v promtool >/dev/null && exit 0
hint="install prometheus and promtool (Debian: apt-get install prometheus); some tests need them"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "$hint" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # RUNLEVEL: start no service
apt-get update -qq
apt-get install -qq -y --no-install-recommends prometheus >/dev/null || { echo "$hint" >&2; exit 1; }
