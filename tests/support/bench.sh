#!/bin/sh
# `make bench`: side by side in one run, five interleaved rounds, medians and ratios; absolute figures are this machine's and this minute's.
# Wants nginx, wrk and (for the Python tool) pip; what is missing is named and left out. All traffic stays on 127.0.0.1.
set -eu
cd "$(dirname "$0")/../.."
bin="$PWD/target/${TARGET:?run it as make bench}/release/sanduk"
model="$PWD/target/$TARGET/release/examples/upstream"
python=$(command -v python3 || true)
nginx=$(command -v nginx || echo /usr/sbin/nginx)
rounds=${ROUNDS:-5}
t=$(mktemp -d /tmp/sanduk-bench.XXXXXX)
chmod 755 "$t"
pids=
cleanup() { for p in $pids; do kill "$p" 2>/dev/null || true; done; rm -rf "$t"; }
trap cleanup EXIT
trap 'exit 130' INT TERM
median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {if (b > 0) printf "%.2f", a / b; else printf "-"}'; }
free_port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
up() { for _ in $(seq 50); do "$python" -c "import socket; socket.create_connection(('127.0.0.1', $1), 1)" 2>/dev/null && return 0; sleep 0.1; done; return 1; }

echo "== start of a command, milliseconds (median of $((rounds * 4)))"
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
printf '  %-34s %s\n' "sanduk --help" "$(once $((rounds * 4)) "$bin" --help)"
printf '  %-34s %s\n' "true(1)" "$(once $((rounds * 4)) /bin/true)"
mkdir -p "$t/w" "$t/state"; user=
if [ "$(id -u)" = 0 ]; then chown 65534:65534 "$t/w"; user="setpriv --reuid 65534 --regid 65534 --clear-groups"; fi
export XDG_STATE_HOME="$t/state" ANTHROPIC_API_KEY=sk-bench
printf '  %-34s %s\n' "sanduk run --dry-run" \
  "$(once $((rounds * 4)) "$bin" run x -w "$t/w" --runtime bwrap --agent mini --model m --upstream http://127.0.0.1:9 --dry-run)"

echo "== a run that does nothing, against bare bwrap of the same shape"
"$model" --script text --stay > "$t/model.out" & pids="$pids $!"
sleep 0.5; address=$(awk '/^listening/ {print $2; exit}' "$t/model.out")
bare() { once $((rounds * 2)) $user bwrap --unshare-user --unshare-ipc --unshare-pid --unshare-net --unshare-uts --die-with-parent \
  --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --bind "$t/w" /work -- /bin/true; }
ours() { once $((rounds * 2)) "$bin" run x -w "$t/w" --runtime bwrap --agent mini --model m --upstream "http://$address" --skip-key-check -q; }
b=$(bare); o=$(ours)
printf '  %-34s %s ms\n  %-34s %s ms   ratio %s\n' "bwrap … true" "$b" "sanduk run (one model call)" "$o" "$(ratio "$o" "$b")"

echo "== on docker, against plain docker (medians [quartiles] of $((rounds * 3)) interleaved rounds)"
if ! docker image inspect sanduk-base:bookworm >/dev/null 2>&1; then
  echo "bench: no docker, or no sanduk-base:bookworm (make image-base): its rows are left out"
elif [ -z "$python" ]; then
  echo "bench: no python3: the rows of docker are left out"
else
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
  ROUNDS=$((rounds * 3)) "$python" tests/support/bench_docker.py "$bin" "$t/w" "$(stat -c %u:%g "$t/w")" "sanduk-claude:$version" || true
fi

[ -x "$nginx" ] && command -v wrk >/dev/null || { echo "bench: no nginx or wrk: apt-get install nginx-light wrk; relay rows left out"; exit 0; }
echo "== relay, requests per second (medians of $rounds interleaved rounds of 2 s)"
U=$(free_port); N=$(free_port); S=$(free_port); P=$(free_port)
answer='{"type":"message","id":"msg_1","model":"m","content":[{"type":"text","text":"'$(printf 'x%.0s' $(seq 120))'"}],"usage":{"input_tokens":10,"output_tokens":5}}'
cat > "$t/nginx.conf" <<NG
daemon off; worker_processes 2; pid $t/nginx.pid; error_log $t/error.log;
events { worker_connections 1024; }
http {
  access_log off; client_body_temp_path $t/body; proxy_temp_path $t/proxy; fastcgi_temp_path $t/body; uwsgi_temp_path $t/body; scgi_temp_path $t/body;
  client_max_body_size 64m; client_body_buffer_size 256k; keepalive_requests 10000000;
  upstream model { server 127.0.0.1:$U; keepalive 128; keepalive_requests 10000000; }
  server { listen 127.0.0.1:$U backlog=1024; default_type application/json; location / { return 200 '$answer'; } }
  server { listen 127.0.0.1:$N backlog=1024; location / { proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header x-api-key key; } }
}
NG
mkdir -p "$t/body" "$t/proxy"
"$nginx" -c "$t/nginx.conf" -p "$t" 2>/dev/null & pids="$pids $!"
# As long as a real one: the search for it in each body skips by its length.
key=sk-ant-api03-$(printf 'Ab0-%.0s' $(seq 23))x
printf RUNTOKEN > "$t/token"; printf %s "$key" > "$t/key"
"$bin" relay --listen tcp:127.0.0.1:$S --provider anthropic --upstream http://127.0.0.1:$U --token-file "$t/token" --key-file "$t/key" \
  --host relay.test --mode key-safe --allow-model m --max-tokens-cap 1000 -q 2>"$t/relay.err" & pids="$pids $!"
tool=
if [ -n "$python" ] && "$python" -m venv "$t/venv" >/dev/null 2>&1 && "$t/venv/bin/pip" -q install sanduk==0.3.1 >/dev/null 2>&1; then
  cat > "$t/tool.py" <<PY
import sys, time
from sanduk.proxy import start_proxy
from sanduk import providers
sys.stderr = open("/dev/null", "w")
start_proxy("$key", "RUNTOKEN", "127.0.0.1", $P, upstream="127.0.0.1:$U", allow_models=["m"], max_tokens_cap=1000,
            provider=__import__("dataclasses").replace(providers.PROVIDERS["anthropic"], scheme="http", host="127.0.0.1:$U"))
time.sleep(3600)
PY
  "$t/venv/bin/python" "$t/tool.py" >/dev/null 2>"$t/tool.err" & pids="$pids $!"
  up "$P" && tool=1 || { echo "bench: the Python tool did not start: $(tail -1 "$t/tool.err")"; }
else
  echo "bench: the Python tool could not be installed; its column is left out"
fi
up "$N"; up "$S"; up "$U"
cat > "$t/get.lua" <<'LUA'
wrk.path = "/v1/models"; wrk.headers["Host"] = "relay.test"; wrk.headers["x-api-key"] = "RUNTOKEN"
done = function(s) io.write("bad " .. s.errors.status + s.errors.read .. "\n") end
LUA
cat > "$t/post.lua" <<'LUA'
wrk.method = "POST"; wrk.path = "/v1/messages"; wrk.headers["Host"] = "relay.test"; wrk.headers["x-api-key"] = "RUNTOKEN"
wrk.headers["Content-Type"] = "application/json"
local turn = '{"role":"user","content":[{"type":"text","text":"' .. string.rep("word and line \\n", 60) .. '"}]}'
local all = {}; for i = 1, 116 do all[i] = turn end
wrk.body = '{"model":"m","max_tokens":64000,"messages":[' .. table.concat(all, ",") .. ']}'
done = function(s) io.write("bad " .. s.errors.status + s.errors.read .. "\n") end
LUA
rate() { # PORT CONNECTIONS SCRIPT
  out=$(wrk -t1 -c"$2" -d2s -s "$t/$3.lua" "http://127.0.0.1:$1" 2>&1)
  [ "$(echo "$out" | awk '/^bad/ {print $2}')" = 0 ] || echo "bench: errors on port $1 ($3, c=$2): $(echo "$out" | grep -iE 'non-2xx|socket' | tr '\n' ' ')" >&2
  echo "$out" | awk '/^Requests\/sec/ {print $2}'
}
for what in get post; do
  for c in 1 8 64; do
    : > "$t/n"; : > "$t/s"; : > "$t/p"
    for _ in $(seq "$rounds"); do
      rate "$N" $c $what >> "$t/n"; rate "$S" $c $what >> "$t/s"; [ -z "$tool" ] || rate "$P" $c $what >> "$t/p"
    done
    n=$(median < "$t/n"); s=$(median < "$t/s"); p=$(median < "$t/p")
    printf '  %-5s c=%-3s nginx %9s   sanduk relay %9s   ratio to nginx %5s' $what $c "$n" "$s" "$(ratio "$s" "$n")"
    [ -z "$tool" ] && echo || printf '   Python tool %8s   ratio to it %s\n' "$p" "$(ratio "$s" "$p")"
  done
done
