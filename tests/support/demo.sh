#!/bin/sh
# `make demo`: the main job, for real, with nothing but this machine. Scripted model, sample project, sealed box, report, receipt;
# then a look for whatever was left behind. Needs no key and no network.
set -eu
cd "$(dirname "$0")/../.."
out="target/${TARGET:?run it as make demo}/debug"
place=$(mktemp -d /tmp/sanduk-demo.XXXXXX)
chmod 755 "$place"
model=
cleanup() { [ -z "$model" ] || kill "$model" 2>/dev/null || true; rm -rf "$place"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir "$place/project" "$place/state"
cat > "$place/project/stack.py" <<'PY'
"""A stack of numbers."""


class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop(0)
PY
printf 'API_TOKEN=not-a-real-secret\n' > "$place/project/.env"
# A box never runs as root here: as root, the project belongs to an ordinary user.
[ "$(id -u)" != 0 ] || chown -R 65534:65534 "$place/project"

"$out/examples/upstream" --script demo --stay --record "$place/requests.jsonl" > "$place/upstream.out" &
model=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do grep -q listening "$place/upstream.out" && break; sleep 0.2; done
address=$(awk '/^listening/ {print $2; exit}' "$place/upstream.out")
[ -n "$address" ] || { echo "demo: the scripted model did not start" >&2; exit 125; }

echo "== the run: sanduk run '…' -w project --agent mini --mask .env (sealed, provider anthropic, scripted model)"
export XDG_STATE_HOME="$place/state"
code=0
ANTHROPIC_API_KEY=sk-demo-not-a-real-key-0123456789 "$out/sanduk" run \
  'Review stack.py, say whether pop() is right, and write what you find to REPORT.md.' \
  -w "$place/project" --runtime bwrap --agent mini --model demo-model --upstream "http://$address" \
  --mask .env --max-tokens-cap 4000 --timeout 2m --stats-file "$place/stats.json" || code=$?
[ $code -eq 0 ] || { echo "demo: sanduk ended with $code" >&2; exit $code; }

echo; echo "== the report (project/REPORT.md)"; cat "$place/project/REPORT.md"
echo; echo "== the receipt"; cat "$place"/state/sanduk/receipts/*/receipt.json; echo
echo "== what the model saw: $(wc -l < "$place/requests.jsonl") requests"

bad=0
left() { echo "demo: left behind: $*" >&2; bad=1; }
# Ours are the processes that run this binary, or that have the project mounted: another run on this machine is none of it.
ours() {
  for p in /proc/[0-9]*; do
    [ "$(readlink "$p/exe" 2>/dev/null)" = "$PWD/$out/sanduk" ] || grep -qs "$place/project" "$p/mountinfo" || continue
    echo "${p#/proc/}: $(tr '\0' ' ' < "$p/cmdline" 2>/dev/null)"
  done
}
[ -z "$(ours)" ] || left "a process, and with it its sockets and mounts: $(ours)"
[ -z "$(ls "$place/state/sanduk/runs" 2>/dev/null)" ] || left "a record: $(ls "$place/state/sanduk/runs")"
for c in /tmp/sbx-*; do
  [ ! -d "$c" ] || [ "$c" -ot "$place/upstream.out" ] || ! cmp -s "$c/sanduk" "$out/sanduk" || left "a channel directory: $c"
done
! grep -q 'sk-demo-not-a-real-key' -r "$place/project" "$place/state" || left "the key, on disk"
grep -q 'sk-demo-not-a-real-key' "$place/requests.jsonl" || { echo "demo: the model never saw the key" >&2; bad=1; }
! grep -q 'not-a-real-secret' "$place/requests.jsonl" || left "the masked file, in a request"
[ $bad -eq 0 ] && echo "== nothing left: no process, no mount, no socket, no record; the key is on no disk"
exit $bad
