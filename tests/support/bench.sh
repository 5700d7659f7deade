#!/bin/sh
# `make bench`: side by side in one run, interleaved rounds, medians and ratios; absolute figures are this machine's and this minute's.
# What the machine lacks is named and left out. All traffic stays on 127.0.0.1. Settings, by the environment:
#   ROUNDS=5         rounds of which the median is taken
#   ONLY=get,post    of start run docker get post https stream sse memory log
set -eu
cd "$(dirname "$0")/../.."
bin="$PWD/target/${TARGET:?run it as make bench}/release/sanduk"
model="$PWD/target/$TARGET/release/examples/upstream"
python=$(command -v python3 || true)
nginx=$(command -v nginx || echo /usr/sbin/nginx)
rounds=${ROUNDS:-5}
want() { case ",${ONLY:-$1}," in *",$1,"*) ;; *) return 1 ;; esac; }
t=$(mktemp -d /tmp/sanduk-bench.XXXXXX)
chmod 755 "$t"
pids=
cleanup() { for p in $pids; do kill "$p" 2>/dev/null || true; done; rm -rf "$t"; }
trap cleanup EXIT
trap 'exit 130' INT TERM
median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {if (b <= 0) print "-"; else if (a / b < 0.1) printf "%.4f", a / b; else printf "%.2f", a / b}'; }

once() { "$python" - "$@" <<'PY'
import subprocess, sys, time
n = int(sys.argv[1]); v = []
for _ in range(n):
    t = time.perf_counter()
    subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    v.append((time.perf_counter() - t) * 1000)
print(f"{sorted(v)[n // 2]:.2f}")
PY
}
mkdir -p "$t/w" "$t/state"; user=
if [ "$(id -u)" = 0 ]; then chown 65534:65534 "$t/w"; user="setpriv --reuid 65534 --regid 65534 --clear-groups"; fi
export XDG_STATE_HOME="$t/state" ANTHROPIC_API_KEY=sk-bench

if want start; then
  echo "== start of a command, milliseconds (median of $((rounds * 4)))"
  printf '  %-34s %s\n' "sanduk --help" "$(once $((rounds * 4)) "$bin" --help)"
  printf '  %-34s %s\n' "true(1)" "$(once $((rounds * 4)) /bin/true)"
  printf '  %-34s %s\n' "sanduk run --dry-run" \
    "$(once $((rounds * 4)) "$bin" run x -w "$t/w" --runtime bwrap --agent mini --model m --upstream http://127.0.0.1:9 --dry-run)"
fi

"$model" --script text --stay > "$t/model.out" & pids="$pids $!"
sleep 0.5; address=$(awk '/^listening/ {print $2; exit}' "$t/model.out")
bare() { once $((rounds * 2)) $user bwrap --unshare-user --unshare-ipc --unshare-pid --unshare-net --unshare-uts --die-with-parent \
  --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --bind "$t/w" /work -- /bin/true; }
ours() { once $((rounds * 2)) "$bin" run x -w "$t/w" --runtime bwrap --agent mini --model m --upstream "http://$address" --skip-key-check -q; }
if want run; then
  echo "== a run that does nothing, against bare bwrap of the same shape"
  b=$(bare); o=$(ours)
  printf '  %-34s %s ms\n  %-34s %s ms   ratio %s\n' "bwrap … true" "$b" "sanduk run (one model call)" "$o" "$(ratio "$o" "$b")"
fi

want docker && echo "== on docker, against plain docker (medians [quartiles] of $((rounds * 3)) interleaved rounds)"
if ! want docker; then :
elif ! docker image inspect sanduk-base:bookworm >/dev/null 2>&1; then
  echo "bench: no docker, or no sanduk-base:bookworm (make image-base): its rows are left out"
elif [ -z "$python" ]; then
  echo "bench: no python3: the rows of docker are left out"
else
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
  tool=
  if "$python" -m venv "$t/tool" >/dev/null 2>&1 && "$t/tool/bin/pip" -q install sanduk==0.3.1 >/dev/null 2>&1; then
    tool="$t/tool/bin/sanduk"
  else
    echo "bench: the Python tool could not be installed; its row is left out"
  fi
  TOOL=$tool ROUNDS=$((rounds * 3)) "$python" tests/support/bench_docker.py "$bin" "$t/w" "$(stat -c %u:%g "$t/w")" "sanduk-claude:$version" || true
fi

. tests/support/bench_relay.sh
