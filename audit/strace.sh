#!/bin/sh
# What really happened: runs a command under strace -f and holds every program started, address connected to and file opened against
# strace.txt, whose rows name doors of effects.txt. Optional (needs strace).   sh audit/strace.sh [--list] COMMAND…
#   sh audit/strace.sh target/x86_64-unknown-linux-musl/debug/sanduk run 'task' -w DIR …
# --list prints what was seen instead. It covers dependencies and SQLite, which doors cannot; it proves nothing about what did not run.
set -eu
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
list=; [ "${1:-}" = --list ] && { list=1; shift; }
[ $# -gt 0 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
command -v strace >/dev/null || { echo "strace.sh: strace is missing: apt install strace" >&2; exit 2; }
t=$(mktemp -d); trap 'rm -rf "$t"' EXIT

code=0
strace -f -y -qq -s 256 -e signal=none -e trace=execve,execveat,connect,bind,open,openat,openat2,creat -o "$t/trace" "$@" || code=$?

# "exec PATH", "connect ADDRESS", "listen ADDRESS", "write PATH", "read PATH", "look PATH" (O_PATH). Calls that failed did
# nothing; a connect that was refused was still tried.
awk '
function quoted(s) { return match(s, /"[^"]*"/) ? substr(s, RSTART + 1, RLENGTH - 2) : "?" }
function address(s) {
  if (s ~ /AF_UNIX/) return "unix:" (s ~ /sun_path=@/ ? "@" : "") quoted(s)
  if (s ~ /AF_INET/) { match(s, /htons\([0-9]+\)/); port = substr(s, RSTART + 6, RLENGTH - 7); return "tcp:" quoted(s) ":" port }
  match(s, /AF_[A-Z0-9]+/); return substr(s, RSTART, RLENGTH)
}
{ sub(/^[0-9]+ +/, ""); failed = / = -1 / }
/<\.\.\. open[a-z0-9]* resumed>.* = [0-9]+</ { sub(/<\.\.\. /, ""); sub(/ resumed>/, "("); }
/<\.\.\. .* resumed>/ { next }
/^connect\(/ { print "connect", address($0); next }
failed { next }
/^execve/ { print "exec", quoted($0) }
/^bind\(/ { print "listen", address($0) }
# The path that was opened stands behind the new descriptor; what is still unfinished has none yet.
/^(open|openat|openat2|creat)\(.* = [0-9]+<.*>$/ {
  what = /O_PATH/ ? "look" : /O_WRONLY|O_RDWR|O_CREAT|^creat/ ? "write" : "read"
  sub(/.* = [0-9]+</, ""); sub(/>$/, ""); sub(/ \(deleted\)$/, ""); print what, $0
}
' "$t/trace" | sort -u > "$t/seen"
[ -z "$list" ] || { cat "$t/seen"; exit $code; }

sed 's/#.*//; /^[[:space:]]*$/d' "$here/strace.txt" > "$t/rows"
bad=0
while read -r what pattern id; do
  grep -q "^$id " "$here/effects.txt" || { echo "strace.sh: $id ($what $pattern) is no door of effects.txt" >&2; bad=1; }
done < "$t/rows"
while read -r what name; do
  # What the command was told to read is no surprise.
  known=; case " $* " in *" $name "*) known=argument ;; esac
  while read -r kind pattern id; do
    # shellcheck disable=SC2254 # a pattern is what it is meant to be
    case $kind:$what in file:read|file:write|file:look|"$what:$what") ;; *) continue ;; esac
    case $name in $pattern) known=$id; break ;; esac
  done < "$t/rows"
  [ -n "$known" ] || { echo "strace.sh: no row for: $what $name" >&2; bad=1; }
done < "$t/seen"
echo "strace.sh: $(wc -l < "$t/seen") different effects; the command ended with $code"
[ $bad -eq 0 ] && [ $code -eq 0 ]
