#!/usr/bin/env bash
# Ends the local cluster: its pods, its programs by their recorded ids, what they mounted and the interfaces they made.
# What volumes hold is removed too, unless KEEP=1.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[ -d "$dir" ] || exit 0
inside() { find /sys/fs/cgroup/*/$group -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u; }

# The kubelet ends the pods, so that the network is told of each; nobody is left who would make others.
end kube-controller-manager; end kube-scheduler
if alive kubelet && alive kube-apiserver; then
    timeout 30 "$("$root/deploy/kube-tools/build.sh" --find)/kubectl" delete pods --all -A --grace-period=1 --wait=false >/dev/null 2>&1
    for _ in $(seq 60); do [ -n "$(inside)" ] || break; sleep 0.5; done
fi
end kubelet; end kube-proxy

# Whatever is in the cluster's control groups is a pod's; containerd's shims follow their containers.
for _ in 1 2 3 4 5; do
    found="$(inside)"
    [ -n "$found" ] || break
    kill -9 $found 2>/dev/null; sleep 0.5
done
for pid in $(pgrep -f -- "-address $dir/containerd.sock"); do kill -9 "$pid" 2>/dev/null; done
end containerd; end kube-apiserver; end etcd
for result in /var/lib/cni/results/ebbtide-*; do
    [ -f "$result" ] || continue
    place="$(grep -o '/run/netns/cni-[^"]*' "$result" | head -1)"
    [ -n "$place" ] && { umount "$place" 2>/dev/null; rm -f "$place"; }
    sandbox="${result##*/ebbtide-}"
    rm -f "$result" "/var/lib/cni/results/cni-loopback-${sandbox%-eth0}-lo"
done

# What the network plugin made for pods of whose end nobody told it. Its comment says whose rule it is.
ours='name: \"ebbtide\" id:'
chains="$(iptables -t nat -S POSTROUTING 2>/dev/null | grep -F "$ours" | sed 's/.* -j //')"
iptables -t nat -S POSTROUTING 2>/dev/null | grep -F "$ours" | sed 's/^-A/-D/' | while read -r rule; do
    eval "iptables -t nat $rule"
done
for chain in $chains; do iptables -t nat -F "$chain" && iptables -t nat -X "$chain"; done
grep -F " $dir/" /proc/self/mounts | cut -d' ' -f2 | sort -r | while read -r place; do umount -l "$place"; done
find /sys/fs/cgroup/*/$group -depth -type d -exec rmdir {} \; 2>/dev/null
for table in "ip kube-proxy" "ip6 kube-proxy"; do nft delete table $table 2>/dev/null; done
for rule in ebbtide-cni0 ebbtide0; do ip link delete $rule 2>/dev/null; done
[ -f "$dir/kernel.before" ] && sysctl -q -e -p "$dir/kernel.before"
if grep -qF " $dir/" /proc/self/mounts; then echo "still mounted below $dir: nothing is removed" >&2; exit 1; fi
[ "${KEEP:-}" = 1 ] || rm -rf --one-file-system "$dir"
