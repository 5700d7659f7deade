#!/bin/sh
# Makes audit/crates.txt from Cargo.lock, `cargo tree` and the sources cargo unpacked (or vendor/). Offline; run after a change of
# Cargo.lock: sh audit/crates.sh > audit/crates.new && mv audit/crates.new audit/crates.txt
set -eu
export LC_ALL=C
cd "$(dirname "$0")/.."
t=$(mktemp -d); trap 'rm -rf "$t"' EXIT

tree() { # EDGES -> "NAME VERSION|FEATURES|LICENCE|macro?" over both architectures we ship
  for target in x86_64-unknown-linux-musl aarch64-unknown-linux-musl; do
    cargo tree --locked --offline --target "$target" -e "$1" --prefix none --no-dedupe --format '{p}|{f}|{l}'
  done | sed 's/ v\([0-9][^ |]*\)/ \1/; s/ (proc-macro)\([^|]*\)/ macro\1/' | grep -v '^sanduk ' | sort -u
}
tree normal,no-proc-macro > "$t/linked"
tree normal,build > "$t/all"
direct=$(cargo tree --locked --offline -e normal --depth 1 --prefix none --format '{p}' | sed 1d | awk '{print $1}')

sources() { # NAME VERSION -> directory
  for d in "vendor/$1-$2" "vendor/$1" "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$1-$2"; do
    [ -f "$d/Cargo.toml" ] && { echo "$d"; return; }
  done
  echo "crates.sh: no sources of $1 $2: run cargo fetch --locked" >&2; exit 1
}
lines() { # DIRECTORY NAME-PATTERN... -> lines of all matching files, tests and benches left out
  d=$1; shift
  find "$d" \( -name tests -o -name benches -o -name examples \) -prune -o -type f \( "$@" \) -print0 | xargs -0 -r cat | wc -l
}

cat <<'HEAD'
# What is compiled: made by audit/crates.sh, compared with Cargo.lock by audit/check. Words about each direct crate: crates.md.
# kind: linked = in the binary; macro, build = runs or helps while building, not in the binary; unused = in Cargo.lock for other targets.
# rs and c: lines in the package (tests, benches, examples left out; libsqlite3-sys carries a second SQLite that is not compiled).
# unsafe: lines that hold the word. build.rs: SHA-256 of the script that runs on the building machine.
# name version sha256 kind direct features rs unsafe c build.rs licence
HEAD
awk '$1 == "name" {n = $3} $1 == "version" {v = $3} $1 == "checksum" {gsub(/"/, ""); print n, v, $3}' Cargo.lock | tr -d '"' | sort |
while read -r name version sum; do
  row=$(grep "^$name $version[ |]" "$t/all" || true)
  kind=unused
  if grep -q "^$name $version[ |]" "$t/linked"; then kind=linked
  elif echo "$row" | grep -q "^$name $version macro"; then kind=macro
  elif [ -n "$row" ]; then kind=build; fi
  # Never compiled, so its sources need not be here.
  [ $kind = unused ] && { echo "$name $version $sum unused - - - - - - -"; continue; }
  d=$(sources "$name" "$version")
  is_direct=-; echo "$direct" | grep -qx "$name" && is_direct=direct
  # A crate that is both linked and used while building can have two feature sets: their union.
  features=$(echo "$row" | cut -d'|' -f2 | tr ',' '\n' | sed '/^$/d' | sort -u | paste -sd, -)
  licence=$(grep -m1 '^license = ' "$d/Cargo.toml" | sed 's/^license = "//; s/"$//; s:/: OR :g; s/ /_/g')
  script=$(sed -n 's/^build = "\(.*\)"$/\1/p' "$d/Cargo.toml")
  script_sum=-; [ -n "$script" ] && script_sum=$(sha256sum < "$d/$script" | cut -d' ' -f1)
  unsafe=$(find "$d" \( -name tests -o -name benches -o -name examples \) -prune -o -name '*.rs' -print0 | xargs -0 -r cat | grep -cw unsafe || true)
  echo "$name $version $sum $kind $is_direct ${features:--} $(lines "$d" -name '*.rs') $unsafe $(lines "$d" -name '*.c' -o -name '*.h') $script_sum ${licence:--}"
done
# C that is compiled in: a comment for check, a row for sbom.
d=$(sources libsqlite3-sys "$(awk '$1 == "name" {n = $3} $1 == "version" && n == "\"libsqlite3-sys\"" {gsub(/"/, ""); print $3}' Cargo.lock)")
echo "#c sqlite $(sed -n 's/^#define SQLITE_VERSION  *"\(.*\)"/\1/p' "$d/sqlite3/sqlite3.h") $(sha256sum < "$d/sqlite3/sqlite3.c" | cut -d' ' -f1) libsqlite3-sys/sqlite3/sqlite3.c $(wc -l < "$d/sqlite3/sqlite3.c") blessing"
