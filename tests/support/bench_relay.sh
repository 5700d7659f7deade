# The relay's rows of `make bench`; read by bench.sh. One provider (nginx, a process of its own, HTTP and HTTPS), and in front of it, each
# on a port of its own: nginx, haproxy, our relay, the Python tool this one replaces; in front of its HTTPS also stunnel and, where our
# relay can use it, our relay through it. wrk and the provider share the processors with what is measured: compare inside a row only.
# nginx as a proxy gets a body buffer that holds the whole body, else it would write each one to a file; it looks at nothing in it.

if ! { want get || want post || want https || want stream || want sse || want memory || want log; }; then return 0; fi
[ -x "$nginx" ] && command -v wrk >/dev/null && [ -n "$python" ] ||
  { echo "bench: no nginx, wrk or python3: apt-get install nginx-light wrk python3; relay rows left out"; return 0; }
span=${SPAN:-1}
free_port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
up() { for _ in $(seq 50); do "$python" -c "import socket; socket.create_connection(('127.0.0.1', $1), 1)" 2>/dev/null && return 0; sleep 0.1; done; return 1; }
U=$(free_port); UT=$(free_port); N=$(free_port); NT=$(free_port); H=$(free_port); HT=$(free_port)
E=$(free_port) # Where the SSE client's own provider will listen; nginx, haproxy and a relay of ours lead there too.
NE=$(free_port); HE=$(free_port); SE=$(free_port); PE=$(free_port)
S=$(free_port); ST=$(free_port); SU=$(free_port); SL=$(free_port); P=$(free_port)

mkdir -p "$t/ca" "$t/body" "$t/proxy" "$t/www" "$t/st"
chmod 700 "$t/st"
sh tests/support/ca.sh "$t/ca"
answer='{"type":"message","id":"msg_1","model":"m","content":[{"type":"text","text":"'$(printf 'x%.0s' $(seq 120))'"}],"usage":{"input_tokens":10,"output_tokens":5}}'
common="access_log off; client_body_temp_path $t/body; proxy_temp_path $t/proxy; fastcgi_temp_path $t/body; uwsgi_temp_path $t/body;
  scgi_temp_path $t/body; client_max_body_size 64m; client_body_buffer_size 256k; keepalive_requests 10000000;"
head='proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header x-api-key key;'
cat > "$t/provider.conf" <<NG
daemon off; worker_processes 1; pid $t/provider.pid; error_log $t/provider.log; events { worker_connections 1024; }
http {
  $common
  server {
    listen 127.0.0.1:$U backlog=1024; listen 127.0.0.1:$UT ssl backlog=1024; ssl_certificate $t/ca/good.pem; ssl_certificate_key $t/ca/good.key;
    root $t/www; default_type application/json;
    location / { return 200 '$answer'; }
    location = /v1/models { if (\$arg_limit) { rewrite ^ /big last; } return 200 '$answer'; }
    location = /v1/messages { if (\$arg_beta) { rewrite ^ /events last; } return 200 '$answer'; }
    location = /big { }
    location = /events { default_type text/event-stream; error_page 405 =200 \$uri; }
  }
}
NG
cat > "$t/nginx.conf" <<NG
daemon off; worker_processes 2; pid $t/nginx.pid; error_log $t/nginx.log; events { worker_connections 1024; }
http {
  $common
  upstream plain { server 127.0.0.1:$U; keepalive 128; keepalive_requests 10000000; }
  upstream tls { server 127.0.0.1:$UT; keepalive 128; keepalive_requests 10000000; }
  server { listen 127.0.0.1:$N backlog=1024; location / { proxy_pass http://plain; $head } }
  server { listen 127.0.0.1:$NE backlog=1024; location / { proxy_pass http://127.0.0.1:$E; proxy_buffering off; $head } }
  server { listen 127.0.0.1:$NT backlog=1024; location / { proxy_pass https://tls; $head
    proxy_ssl_verify on; proxy_ssl_trusted_certificate $t/ca/ca.pem; proxy_ssl_name api.test; } }
}
NG
cat > "$t/haproxy.cfg" <<HA
global
  nbthread 2
  maxconn 2048
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
listen plain
  http-request set-header x-api-key key
  bind 127.0.0.1:$H
  server p 127.0.0.1:$U
listen tls
  http-request set-header x-api-key key
  bind 127.0.0.1:$HT
  server p 127.0.0.1:$UT ssl verify required ca-file $t/ca/ca.pem verifyhost api.test sni str(api.test)
listen events
  http-request set-header x-api-key key
  bind 127.0.0.1:$HE
  server p 127.0.0.1:$E
HA
"$nginx" -c "$t/provider.conf" -p "$t" 2>/dev/null & pids="$pids $!"
"$nginx" -c "$t/nginx.conf" -p "$t" 2>/dev/null & proxy=$!; pids="$pids $proxy"
up "$U" && up "$N" || { echo "bench: nginx did not start: $(tail -1 "$t/provider.log" "$t/nginx.log")"; return 0; }
haproxy=
if command -v haproxy >/dev/null; then haproxy -q -f "$t/haproxy.cfg" 2>"$t/haproxy.err" & haproxy=$!; pids="$pids $haproxy"
  up "$H" || { echo "bench: haproxy did not start: $(tail -1 "$t/haproxy.err")"; haproxy=; }
else echo "bench: no haproxy: apt-get install haproxy; its column is left out"; fi

# As long as a real one: the search for it in each body skips by its length.
key=sk-ant-api03-$(printf 'Ab0-%.0s' $(seq 23))x
printf RUNTOKEN > "$t/token"; printf %s "$key" > "$t/key"
relay() { # PORT UPSTREAM [FLAG…]: its pid in $pid
  port=$1; upstream=$2; shift 2
  "$bin" relay --listen "tcp:127.0.0.1:$port" --provider anthropic --upstream "$upstream" --token-file "$t/token" --key-file "$t/key" \
    --host relay.test --mode key-safe --allow-model m --max-tokens-cap 1000 -q "$@" 2>"$t/relay.$port.err" & pid=$!; pids="$pids $pid"
  up "$port" || { echo "bench: the relay did not start: $(tail -1 "$t/relay.$port.err")"; return 1; }
}
relay "$S" "http://127.0.0.1:$U" || return 0
ours=$pid

tool=
if "$python" -m venv "$t/venv" >/dev/null 2>&1 && "$t/venv/bin/pip" -q install sanduk==0.3.1 >/dev/null 2>&1; then
  cat > "$t/tool.py" <<PY
import dataclasses, sys, time
from sanduk.proxy import start_proxy
from sanduk import providers
sys.stderr = open("/dev/null", "w")
port, upstream = int(sys.argv[1]), "127.0.0.1:" + sys.argv[2]
start_proxy("$key", "RUNTOKEN", "127.0.0.1", port, upstream=upstream, allow_models=["m"], max_tokens_cap=1000,
            provider=dataclasses.replace(providers.PROVIDERS["anthropic"], scheme="http", host=upstream))
time.sleep(3600)
PY
  "$t/venv/bin/python" "$t/tool.py" "$P" "$U" >/dev/null 2>"$t/tool.err" & tool=$!; pids="$pids $tool"
  "$t/venv/bin/python" "$t/tool.py" "$PE" "$E" >/dev/null 2>&1 & pids="$pids $!"
  up "$P" || { echo "bench: the Python tool did not start: $(tail -1 "$t/tool.err")"; tool=; }
else
  echo "bench: the Python tool could not be installed; its column is left out"
fi

cat > "$t/get.lua" <<'LUA'
wrk.path = "/v1/models"; wrk.headers["Host"] = "relay.test"; wrk.headers["x-api-key"] = "RUNTOKEN"
done = function(s) io.write("bad " .. s.errors.status + s.errors.read .. "\n") end
LUA
# 111 KB of 116 turns; an escape every 16 bytes.
cat > "$t/post.lua" <<'LUA'
wrk.method = "POST"; wrk.path = "/v1/messages"; wrk.headers["Host"] = "relay.test"; wrk.headers["x-api-key"] = "RUNTOKEN"
wrk.headers["Content-Type"] = "application/json"
local turn = '{"role":"user","content":[{"type":"text","text":"' .. string.rep("word and line \\n", 60) .. '"}]}'
local all = {}; for i = 1, 116 do all[i] = turn end
wrk.body = '{"model":"m","max_tokens":64000,"messages":[' .. table.concat(all, ",") .. ']}'
done = function(s) io.write("bad " .. s.errors.status + s.errors.read .. "\n") end
LUA
rate() { # PORT CONNECTIONS SCRIPT
  out=$(wrk -t1 -c"$2" -d"${span}s" -s "$t/$3.lua" "http://127.0.0.1:$1" 2>&1)
  [ "$(echo "$out" | awk '/^bad/ {print $2}')" = 0 ] || echo "bench: errors on port $1 ($3, c=$2): $(echo "$out" | grep -iE 'non-2xx|socket' | tr '\n' ' ')" >&2
  echo "$out" | awk '/^Requests\/sec/ {print $2}'
}
speed() { # PORT get|post: bytes a second of one answer of 200 MB
  case $2 in
    get) set -- "http://127.0.0.1:$1/v1/models?limit=1" ;;
    post) set -- "http://127.0.0.1:$1/v1/messages?beta=true" -H 'Content-Type: application/json' -d '{"model":"m","max_tokens":9,"stream":true,"messages":[]}' ;;
  esac
  curl -s -o /dev/null -w '%{speed_download}\n' -H 'Host: relay.test' -H 'x-api-key: RUNTOKEN' "$@"
}
# compare TITLE COMMAND NAME=PORT… -- [ARG…]: COMMAND PORT ARG… gives a figure for each, in turns; the ratios are to the first one.
compare() {
  title=$1; command=$2; shift 2; who=
  while [ "$1" != -- ]; do who="$who $1"; : > "$t/figures.${1%=*}"; shift; done
  shift
  for _ in $(seq "$rounds"); do
    for w in $who; do "$command" "${w#*=}" "$@" >> "$t/figures.${w%=*}"; done
  done
  first=; line=
  for w in $who; do
    m=$(median < "$t/figures.${w%=*}"); [ -n "$first" ] || first=$m
    line="$line  ${w%=*} $(awk -v m="$m" 'BEGIN {if (m > 1e7) printf "%.0fM", m / 1e6; else printf "%.0f", m}') ($(ratio "$m" "$first"))"
  done
  printf '  %-24s%s\n' "$title" "$line"
}

plain="nginx=$N ${haproxy:+haproxy=$H} sanduk=$S ${tool:+tool=$P}"
echo "== relay: name, figure, ratio to the first of the row (medians of $rounds interleaved rounds of $span s)"
echo "   nginx -v: $("$nginx" -v 2>&1); tool: the Python tool, version 0.3.1; sanduk: our relay with model policy and cap"
for what in get post; do
  want $what || continue
  for c in 1 8 64; do compare "$what c=$c, 1/s" rate $plain -- $c $what; done
done

if want https; then
  tls="nginx=$NT ${haproxy:+haproxy=$HT}"
  relay "$ST" "https://127.0.0.1:$UT" --ca-file "$t/ca/ca.pem" && tls="$tls s_client=$ST"
  stunnel=$(command -v stunnel4 || command -v stunnel || true)
  if [ -z "$stunnel" ]; then echo "bench: no stunnel: apt-get install stunnel4; its column is left out"
  else
    D=$(free_port)
    for at in "$D" "$t/st/up.sock"; do
      printf 'foreground = yes\npid =\nsyslog = no\ndebug = 3\n[up]\nclient = yes\naccept = %s\nconnect = 127.0.0.1:%s\nsni = api.test\ncheckHost = api.test\nverifyChain = yes\nCAfile = %s\nsslVersionMin = TLSv1.2\nTIMEOUTclose = 0\n' \
        "$at" "$UT" "$t/ca/ca.pem" > "$t/st/${at##*/}.conf"
      "$stunnel" "$t/st/${at##*/}.conf" 2>"$t/st/err" & pids="$pids $!"
    done
    up "$D" && tls="$tls stunnel_alone=$D"
    if "$bin" relay --help | grep -q 'stunnel:unix'; then
      relay "$SU" "https://127.0.0.1:$UT" --tls "stunnel:unix:$t/st/up.sock" && tls="$tls stunnel=$SU"
    else echo "bench: this relay cannot use stunnel yet; its column is left out"; fi
  fi
  echo "== the same to a provider on HTTPS (stunnel_alone: it passes bytes, checks no request, puts no key in)"
  for c in 1 8 64; do compare "https get c=$c, 1/s" rate $tls -- $c get; done
  for c in 1 8; do compare "https post c=$c, 1/s" rate $tls -- $c post; done
fi

if want stream; then
  echo "== one answer of 200 MB, bytes a second; events: of a model's stream, whose usage is read on the way"
  truncate -s 200000000 "$t/www/big"
  "$python" - "$t/www/events" <<'PY'
import sys
begin = b'event: message_start\ndata: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":9,"output_tokens":1}}}\n\n'
delta = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a few words of an answer\\n"}}\n\n'
end = b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
with open(sys.argv[1], "wb") as f:
    f.write(begin + delta * (200_000_000 // len(delta)) + end)
PY
  compare "stream, bytes" speed $plain -- get
  compare "stream of events" speed $plain -- post
  [ -z "${tls:-}" ] || compare "https stream, bytes" speed $tls -- get
fi

if want sse; then
  echo "== 200 events, one in 5 ms: microseconds from the provider's write to the client's read, p50 / p99, and ratio of p50 to nginx"
  relay "$SE" "http://127.0.0.1:$E" || return 0
  "$python" tests/support/bench_sse.py "$E" "$rounds" "nginx=$NE" "direct=$E" ${haproxy:+haproxy=$HE} "sanduk=$SE" ${tool:+tool=$PE}
fi

if want memory; then
  echo "== memory in KiB, of all processes of each, idle; and for each of 100 connections that had one call and wait"
  relay "$(free_port)" "http://127.0.0.1:$U" || return 0
  "$python" tests/support/bench_memory.py 100 "nginx=$proxy:$N" ${haproxy:+haproxy=$haproxy:$H} "sanduk=$pid:$port" ${tool:+tool=$tool:$P}
fi

if want log; then
  echo "== the record of calls: none, and written and synced before each call ($(df --output=source "$t" | tail -1))"
  relay "$SL" "http://127.0.0.1:$U" --log-dir "$t/log" || return 0
  for c in 1 8 64; do compare "get c=$c, 1/s" rate "none=$S" "synced=$SL" -- $c get; done
fi
