#!/usr/bin/env bash
# Has bubblewrap on this machine, in which rewards of type code run the programs of answers.
set -euo pipefail
command -v bwrap >/dev/null && exit 0
hint="install bubblewrap (Debian: apt-get install bubblewrap); rewards of type code and their tests need it"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "$hint" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends bubblewrap >/dev/null || { echo "$hint" >&2; exit 1; }
