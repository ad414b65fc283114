#!/bin/bash
# One TCP stream through two devices in two network namespaces, measured by iperf3.
#
#   cargo build --release -p scafo-wg --example device && wg/examples/one-stream.sh [SECONDS] [UNDERLAY-MTU]
#
# Needs root, iproute2, wireguard-tools and iperf3. Everything it makes carries its pid and goes when it ends.
set -euo pipefail
seconds=${1:-5} mtu=${2:-1500}
device=${DEVICE:-$(dirname "$0")/../../target/release/examples/device}
a=wgbench-a-$$ b=wgbench-b-$$ work=$(mktemp -d) pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
ip netns add "$a"
ip netns add "$b"
ip link add va netns "$a" type veth peer name vb netns "$b"
for side in "$a va 172.31.0.1" "$b vb 172.31.0.2"; do
    read -r ns dev address <<<"$side"
    ip -n "$ns" link set lo up
    ip -n "$ns" address add "$address/24" dev "$dev"
    ip -n "$ns" link set "$dev" mtu "$mtu" up
done
ka=$(wg genkey) kb=$(wg genkey)
mkfifo "$work/a" "$work/b"
ip netns exec "$a" "$device" <"$work/a" >"$work/a.log" & pids+=($!)
ip netns exec "$b" "$device" <"$work/b" >"$work/b.log" & pids+=($!)
exec 8>"$work/a" 9>"$work/b"
cat >&8 <<END
open scafo0 $ka 51820 10.88.0.0/16 -
address 10.88.0.1
peer b $(wg pubkey <<<"$kb") 10.88.0.2/32 172.31.0.2:51820 25
END
cat >&9 <<END
open scafo0 $kb 51820 10.88.0.0/16 -
address 10.88.0.2
peer a $(wg pubkey <<<"$ka") 10.88.0.1/32 172.31.0.1:51820 25
END
for _ in $(seq 50); do
    ip netns exec "$a" ping -c1 -W1 10.88.0.2 >/dev/null 2>&1 && break
    sleep 0.1
done
ip netns exec "$b" iperf3 -s -1 >/dev/null & pids+=($!)
sleep 0.3
before=$(cat /proc/"${pids[0]}"/stat /proc/"${pids[1]}"/stat | awk '{s+=$14+$15} END {print s}')
ip netns exec "$a" iperf3 -c 10.88.0.2 -t "$seconds" -J >"$work/result"
after=$(cat /proc/"${pids[0]}"/stat /proc/"${pids[1]}"/stat | awk '{s+=$14+$15} END {print s}')
python3 - "$work/result" "$((after - before))" <<'END'
import json, os, sys
end = json.load(open(sys.argv[1]))["end"]
received, cpu = end["sum_received"], int(sys.argv[2]) / os.sysconf("SC_CLK_TCK")
print(f"{received['bits_per_second'] / 1e9:.2f} Gbit/s, {end['sum_sent']['retransmits']} retransmits, "
      f"{cpu / received['bytes'] * 1e9:.2f} CPU seconds per GB in both devices together")
END
echo status >&8
echo status >&9
sleep 0.2
grep -h '^ok port=.*mtu' "$work"/*.log
for pid in "${pids[@]:0:2}"; do grep -H VmHWM /proc/$pid/status; done
