#!/bin/sh
# What really happened: runs a command under strace -f and holds every program started, address connected to or listened on and file
# opened, by which of our roles, against strace.txt, whose rows name doors of effects.txt. Fails where something has no row.
#   sh audit/strace.sh [--list] [--used FILE] COMMAND…
#   sh audit/strace.sh target/x86_64-unknown-linux-musl/debug/sanduk run 'task' -w DIR …
# --list prints what was seen instead; --used adds the rows that were needed to FILE (`make strace` wants each row needed by some run).
# Needs strace 5.11 or newer. It covers dependencies and SQLite, which doors cannot; it proves nothing about what did not run.
set -eu
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
list=; used=/dev/null
while :; do
  case "${1:-}" in
    --list) list=1; shift ;;
    --used) used=$2; shift 2 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
command -v strace >/dev/null || { echo "strace.sh: strace is missing: apt install strace" >&2; exit 2; }
t=$(mktemp -d); trap 'rm -rf "$t"' EXIT

code=0
strace -f -y -qq -s 256 -e signal=none --decode-pids=pidns -o "$t/trace" \
  -e trace=execve,execveat,connect,bind,sendto,open,openat,openat2,creat,clone,clone3,fork,vfork "$@" || code=$?

# "WHO exec PATH", "WHO connect ADDRESS", "WHO listen ADDRESS", "WHO write PATH", "WHO read PATH", "WHO look PATH" (O_PATH). WHO is the
# role: the word after our own name, the name of a program we started, or `tool` for what the agent starts in the box. Calls
# that failed did nothing; a connect that was refused was still tried. The first pass learns who is whose child.
awk '
function quoted(s) { return match(s, /"[^"]*"/) ? substr(s, RSTART + 1, RLENGTH - 2) : "?" }
function address(s,   port) {
  if (s ~ /AF_UNIX/) return "unix:" (s ~ /sun_path=@/ ? "@" : "") quoted(s)
  if (s ~ /AF_INET/) {
    match(s, /htons\([0-9]+\)/); port = substr(s, RSTART + 6, RLENGTH - 7); sub(/.*sin6?_addr=/, "", s)
    return (udp ? "udp:" : "tcp:") quoted(s) ":" port
  }
  match(s, /AF_[A-Z0-9]+/); return substr(s, RSTART, RLENGTH)
}
function who(pid) {
  if (!(pid in role)) role[pid] = (pid in parent) && parent[pid] in role ? role[parent[pid]] : "unknown"
  return role[pid]
}
function becomes(was, s,   path, words, n) {
  path = quoted(s); n = split(path, words, "/")
  if (words[n] == "sanduk") { sub(/^[^[]*\["[^"]*"(, )?/, "", s); return quoted(s) }
  return was ~ /^(inside|mini|tool)$/ ? "tool" : words[n]
}
{ pid = $1; sub(/^[0-9]+ +/, "") }
# First pass.
FNR == NR {
  if (/^(clone|clone3|fork|vfork)\(/ || /^<\.\.\. (clone|clone3|fork|vfork) resumed>/) {
    child = ""
    if (match($0, / = [0-9]+( \/\* [0-9]+ in strace.s PID NS \*\/)?$/)) {
      child = substr($0, RSTART + 3, RLENGTH - 3)
      if (child ~ /\/\*/) { sub(/^[^*]*\* /, "", child); sub(/ .*/, "", child) }
      parent[child] = pid
    }
  }
  next
}
{ me = who(pid); failed = / = -1 / }
/^execve(at)?\(/ {
  if (/<unfinished/) waiting[pid] = $0
  # The first of all is the command itself.
  else if (!failed) { if (me != "unknown") print me, "exec", quoted($0); role[pid] = becomes(me, $0) }
  next
}
/<\.\.\. execve(at)? resumed>/ {
  if (!failed && (pid in waiting)) { print me, "exec", quoted(waiting[pid]); role[pid] = becomes(me, waiting[pid]) }
  delete waiting[pid]; next
}
{ udp = /<UDP/ }
# A call that was interrupted by another process has its flags in its first half and its result in its second.
/^open.* <unfinished \.\.\.>$/ { sub(/ <unfinished.*/, ""); opening[pid] = $0; next }
/^<\.\.\. open[a-z0-9]* resumed>/ { sub(/^<\.\.\. open[a-z0-9]* resumed>/, ""); $0 = opening[pid] $0; failed = / = -1 / }
/<\.\.\. .* resumed>/ { next }
/^connect\(/ { print me, "connect", address($0); next }
/^sendto\(/ && /sa_family=/ { print me, "connect", address($0); next }
failed { next }
/^bind\(/ { print me, "listen", address($0) }
# The path that was opened stands behind the new descriptor; what is still unfinished has none yet.
/^(open|openat|openat2|creat)\(.* = [0-9]+<.*>$/ {
  what = /O_PATH/ ? "look" : /O_WRONLY|O_RDWR|O_CREAT|^creat/ ? "write" : "read"
  sub(/.* = [0-9]+</, ""); sub(/>$/, ""); sub(/ \(deleted\)$/, ""); sub(/<char [0-9:]+>$/, ""); print me, what, $0
}
' "$t/trace" "$t/trace" | sort -u > "$t/seen"
[ -z "$list" ] || { cat "$t/seen"; exit $code; }

sed 's/#.*//; /^[[:space:]]*$/d' "$here/strace.txt" > "$t/rows"
bad=0
awk '{print $4}' "$t/rows" | sort -u | while read -r id; do
  grep -q "^$id " "$here/effects.txt" || echo "strace.sh: $id is no door of effects.txt"
done > "$t/strange"
# What the command was told to read or work on.
for word; do printf '%s\n' "$word"; done > "$t/words"
awk -v used="$t/used" '
function glob(s) { gsub(/[].+^$(){}[\\|?]/, "\\\\&", s); gsub(/\*/, ".*", s); return "^" s "$" }
FNR == 1 { file++ }
file == 1 { words[$0] = 1; next }
file == 2 { n++; row[n] = $0; whom[n] = "," $1 ","; what[n] = $2; pattern[n] = glob($3); next }
function fits(pattern, name,   word) {
  if (pattern != "^ARGUMENT$") return name ~ pattern
  for (word in words) if (word ~ /^\/./ && (name == word || index(name, word "/") == 1)) return 1
  return 0
}
{
  me = $1; did = $2; name = substr($0, length(me) + length(did) + 3)
  for (i = 1; i <= n; i++) {
    if (index(whom[i], "," me ",") && (what[i] == did || (what[i] == "file" && did ~ /^(read|write|look)$/)) && fits(pattern[i], name)) {
      print row[i] > used; next
    }
  }
  print "strace.sh: no row for: " $0
}
' "$t/words" "$t/rows" "$t/seen" >> "$t/strange"
[ ! -s "$t/strange" ] || { bad=1; cat "$t/strange" >&2; }
[ ! -e "$t/used" ] || sort -u "$t/used" >> "$used"
echo "strace.sh: $(wc -l < "$t/seen") different effects; the command ended with $code"
[ $bad -eq 0 ] && [ $code -eq 0 ]
