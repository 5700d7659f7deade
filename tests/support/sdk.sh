#!/bin/sh
# `make sdk`: the official SDKs, pinned, as clients of a sealed relay before the scripted model. Needs the network once, for pip and npm (into
# target/sdk). Each client plays tests/support/sdk/script.json from its first reply to its last: a try too many, or too few, is seen.
set -eu
cd "$(dirname "$0")/../.."
out="target/${TARGET:?run it as make sdk}/debug"
sdk=target/sdk
python='anthropic==2.14.0 openai==3.57.0'
js='@anthropic-ai/sdk@1.14.0 openai@6.49.0'
mkdir -p "$sdk"
if [ "$(cat "$sdk/made" 2>/dev/null)" != "$python $js" ]; then
  python3 -m venv "$sdk/py"
  "$sdk/py/bin/pip" -q install $python
  (cd "$sdk" && echo '{"private": true}' > package.json && npm install --silent --no-audit --no-fund $js)
  echo "$python $js" > "$sdk/made"
fi
cp tests/support/sdk/*.mjs "$sdk/"
place=$(mktemp -d /tmp/sanduk-sdk.XXXXXX)
pids=
end() { for p in $pids; do kill "$p" 2>/dev/null || true; done; pids=; }
trap 'end; rm -rf "$place"' EXIT
trap 'exit 130' INT TERM
printf 'sk-sdk-REALKEY-0123456789abcdef\n' > "$place/key"
printf 'run-token-of-the-sdk-test\n' > "$place/token"
line() { for _ in $(seq 100); do grep -q "$1" "$2" && return; sleep 0.1; done; echo "sdk: no '$1'" >&2; cat "$2" >&2; exit 125; }

bad=0
# provider, relay flags, what is run
play() {
  provider=$1 with=$2; shift 2
  echo "== $* ($provider${with:+, $with})"
  : > "$place/model"; : > "$place/relay"; rm -f "$place/seen"
  "$out/examples/upstream" --script tests/support/sdk/script.json --stay --record "$place/seen" > "$place/model" &
  pids="$pids $!"
  line listening "$place/model"
  "$out/sanduk" relay --listen tcp:127.0.0.1:0 --provider "$provider" --upstream "http://$(awk '/^listening/ {print $2; exit}' "$place/model")" \
    --token-file "$place/token" --key-file "$place/key" --allow-model m-1 --max-tokens-cap 4000 $with 2> "$place/relay" &
  pids="$pids $!"
  line ' on tcp:' "$place/relay"
  at=$(sed -n 's/.* on tcp:\([0-9.:]*\);.*/\1/p' "$place/relay" | head -n 1)
  "$@" "http://$at" run-token-of-the-sdk-test $api || { bad=1; grep -E 'REFUSED|ended' "$place/relay" || true; }
  calls=$(grep -c '"method":"POST"' "$place/seen" || true)
  echo "  the model saw $calls calls"
  end
}
# The relay's own tries, where it makes any, are not to be seen here: the SDK's are.
retry=; "$out/sanduk" relay --help | grep -q -- --retry-for && retry='--retry-for 0'
for flags in "$retry" ${retry:+"--retry-for 30s"}; do
  api=
  # What the newer SDKs say, and sealed mode does not take unasked: its fields were not judged.
  newer="$flags --allow-field anthropic-version=2026-10-21"
  play anthropic "$newer" "$sdk/py/bin/python" tests/support/sdk/anthropic_client.py
  play anthropic "$newer" node "$sdk/anthropic_client.mjs"
  for api in chat responses; do
    play openai "$flags" "$sdk/py/bin/python" tests/support/sdk/openai_client.py
    play openai "$flags" node "$sdk/openai_client.mjs"
  done
done
exit $bad
