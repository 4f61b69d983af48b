#!/usr/bin/env bash
# Starts a Kubernetes of one node on this machine (as root), imports the images, prints its kubeconfig. Programs
# that run already are left alone. With CLUSTER_KUBECONFIG nothing is started: it names a cluster that is there (kind, k3d).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if [ -n "${CLUSTER_KUBECONFIG:-}" ]; then
    KUBECONFIG="$CLUSTER_KUBECONFIG" "$("$root/deploy/kube-tools/build.sh")/kubectl" get --raw /readyz >/dev/null
    echo "$CLUSTER_KUBECONFIG"; exit 0
fi
[ "$(id -u)" = 0 ] || { echo "a kubelet needs root; or name a cluster in CLUSTER_KUBECONFIG" >&2; exit 2; }
for program in containerd runc nft conntrack; do
    command -v $program >/dev/null || { echo "$program is missing: apt-get install -y containerd runc containernetworking-plugins nftables conntrack" >&2; exit 2; }
done
tools="$("$root/deploy/kube-tools/build.sh")"; programs="$("$root/deploy/kube-tools/node/build.sh")"
images="$("$here/images.sh")"
export PATH="$tools:$programs:$PATH" CONTAINERD_NAMESPACE=k8s.io
mkdir -p "$dir"/{pids,logs,volumes/{store,compute},cni} && chmod 755 "$dir" "$dir"/volumes

network() {
    ip link show $link >/dev/null 2>&1 || ip link add $link type bridge
    ip addr replace $address/32 dev $link && ip link set $link up
    [ -f "$dir/kernel.before" ] || sysctl -e $kernel >"$dir/kernel.before"
    echo 1 >/proc/sys/net/ipv4/ip_forward
    cat >"$dir/cni/10-bridge.conflist" <<CNI
{"cniVersion": "1.0.0", "name": "ebbtide", "plugins": [
 {"type": "bridge", "bridge": "ebbtide-cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pods"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "$dir/cni-leases"}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
CNI
}

# Pods share one branch of each controller, so that they can be given less of the machine and be swept away.
groups() {
    local controller branch
    for controller in /sys/fs/cgroup/*/; do
        [ -e "$controller/tasks" ] || continue
        branch="$controller$group"; mkdir -p "$branch"
        case "$controller" in
            */cpuset/) cat "${controller}cpuset.cpus" >"$branch/cpuset.cpus"; cat "${controller}cpuset.mems" >"$branch/cpuset.mems" ;;
            */cpu/ | */cpu,cpuacct/) echo "${EBBTIDE_CLUSTER_SHARES:-1024}" >"$branch/cpu.shares" ;;
        esac
    done
}

control_plane() {
    local key="$dir/accounts.key" token
    [ -f "$key" ] || openssl genrsa -out "$key" 2048 2>/dev/null
    [ -f "$dir/tokens.csv" ] || (umask 077; echo "$(openssl rand -hex 24),admin,admin,\"system:masters\"" >"$dir/tokens.csv")
    token="$(cut -d, -f1 "$dir/tokens.csv")"
    run etcd etcd --data-dir="$dir/etcd" --listen-client-urls=http://127.0.0.1:23790 --advertise-client-urls=http://127.0.0.1:23790 \
        --listen-peer-urls=http://127.0.0.1:23800 --initial-advertise-peer-urls=http://127.0.0.1:23800 \
        --initial-cluster=default=http://127.0.0.1:23800 --unsafe-no-fsync --log-level=error
    run kube-apiserver kube-apiserver --etcd-servers=http://127.0.0.1:23790 --cert-dir="$dir/certs" --secure-port=6443 \
        --bind-address=$address --advertise-address=$address --service-cluster-ip-range=$services \
        --service-account-key-file="$key" --service-account-signing-key-file="$key" \
        --service-account-issuer=https://kubernetes.default.svc --token-auth-file="$dir/tokens.csv" \
        --authorization-mode=RBAC --anonymous-auth=false --allow-privileged=true --kubelet-preferred-address-types=InternalIP
    await 60 "the certificate" test -s "$dir/certs/apiserver.crt"
    (umask 077; cat >"$KUBECONFIG" <<YAML
apiVersion: v1
kind: Config
current-context: local
clusters: [{name: local, cluster: {server: "$server", certificate-authority: "$dir/certs/apiserver.crt"}}]
users: [{name: admin, user: {token: "$token"}}]
contexts: [{name: local, context: {cluster: local, user: admin}}]
YAML
    )
    await 120 "the API server" kubectl get --raw /readyz
    run kube-controller-manager kube-controller-manager --kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0 \
        --service-account-private-key-file="$key" --root-ca-file="$dir/certs/apiserver.crt" --cluster-cidr=$pods
    run kube-scheduler kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0
}

runtime() {
    cat >"$dir/containerd.toml" <<TOML
version = 2
root = "$dir/containerd"
state = "$dir/containerd-run"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
address = "$dir/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/ebbtide/pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$dir/cni"
TOML
    run containerd containerd --config "$dir/containerd.toml"
    await 60 "containerd" ctr --address "$dir/containerd.sock" version
    for file in "$images"/*.tar; do
        if cmp -s "$file.id" "$dir/imported-${file##*/}"; then continue; fi
        ctr --address "$dir/containerd.sock" images import "$file" >/dev/null
        cp "$file.id" "$dir/imported-${file##*/}"
    done
}

node() {
    cat >"$dir/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $address
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /$group
clusterDNS: [$dns]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://$dir/containerd.sock
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
failSwapOn: false
healthzPort: 0
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
makeIPTablesUtilChains: false
oomScoreAdj: 0
podLogsDir: $dir/pod-logs
registerWithTaints: []
YAML
    run kubelet kubelet --config="$dir/kubelet.yaml" --kubeconfig="$KUBECONFIG" --root-dir="$dir/kubelet" --cert-dir="$dir/kubelet-certs" \
        --hostname-override=$node --node-ip=$address
    run kube-proxy kube-proxy --kubeconfig="$KUBECONFIG" --proxy-mode=nftables --cluster-cidr=$pods --hostname-override=$node \
        --bind-address=$address --healthz-bind-address=127.0.0.1:23810 --metrics-bind-address=127.0.0.1:23820 --oom-score-adj=0
    await 120 "the node" kubectl wait --for=condition=Ready --timeout=1s node/$node
}

# The heavy Python environment: mounted read-only, so that no owner of a file is ever changed. What pods import is
# compiled before, since none of them could keep what it compiles.
environment() {
    local packages; packages="$("$root/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    mountpoint -q "$dir/volumes/compute" && return
    (cd "$root" && env -u PYTHONDONTWRITEBYTECODE PYTHONPATH=operator:. .venv/bin/python -c \
        'import importlib; from ebbtide_operator.local import WARM_MODULES; [importlib.import_module(name) for name in WARM_MODULES]')
    mount --bind "$packages" "$dir/volumes/compute"
    mount -o remount,bind,ro "$dir/volumes/compute"
}

network; groups; environment
chown 10001:10001 "$dir/volumes/store"
control_plane; runtime; node
sed "s/DNS_ADDRESS/$dns/" "$here/dns.yaml" | kubectl apply -f - >/dev/null
await 120 "CoreDNS" kubectl -n kube-system wait --for=condition=Available --timeout=1s deploy/coredns
echo "$KUBECONFIG"
