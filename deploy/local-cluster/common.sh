# To be sourced: where the local cluster lies and how its programs are started and ended.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
dir="${EBBTIDE_CLUSTER_DIR:-$root/runs/cluster}"
group=ebbtide-cluster             # control groups of all pods
link=ebbtide0                     # an interface of the cluster's own: nothing is seen from outside
address=10.245.0.1
pods=10.244.0.0/24
services=10.96.0.0/16
dns=10.96.0.10
# What the network needs, and what a kubelet and kube-proxy set for themselves: `down` puts it back.
kernel="net.ipv4.ip_forward vm.overcommit_memory kernel.panic kernel.panic_on_oops vm.panic_on_oom kernel.keys.root_maxkeys kernel.keys.root_maxbytes net.ipv4.conf.all.route_localnet net.netfilter.nf_conntrack_max"
node=node1
server="https://$address:6443"
export KUBECONFIG="$dir/kubeconfig"

# Start a program in the background, with its log and its process id in files.
run() {
    local name="$1"; shift
    if alive "$name"; then return; fi
    nohup "$@" >"$dir/logs/$name.log" 2>&1 9>&- </dev/null &
    echo $! >"$dir/pids/$name"
}

alive() { [ -f "$dir/pids/$1" ] && [ -d "/proc/$(cat "$dir/pids/$1")" ]; }

# Wait up to $1 seconds for a command to hold; $2 says what for.
await() {
    local seconds="$1" what="$2" until; shift 2
    until=$((SECONDS + seconds))
    until "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $until ]; then echo "$what is not ready after $seconds s; logs: $dir/logs" >&2; exit 1; fi
        sleep 0.5
    done
}

# End a program: first asked, then killed.
end() {
    local file="$dir/pids/$1" pid; [ -f "$file" ] || return 0
    pid="$(cat "$file")"
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 50); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
    kill -9 "$pid" 2>/dev/null || true
    rm -f "$file"
}
