#!/usr/bin/env bash
# Has chromium on this machine, which the tests of the pages at /ui start without a window.
set -euo pipefail
command -v chromium >/dev/null && exit 0
hint="install chromium (Debian: apt-get install chromium); the tests of the pages need it"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "$hint" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends chromium >/dev/null || { echo "$hint" >&2; exit 1; }
