#!/bin/sh
# Last lines of `make test`: on what it ran, and what this machine could not run.
say() { printf '  %-10s %s\n' "$1" "$2"; }
echo "what ran, and on what:"
say kernel "$(uname -sr)"
say user "$(id -un) ($(id -u))"
say rust "$(rustc --version)"
say openssl "$(openssl version 2>/dev/null || echo none)"
say bwrap "$(bwrap --version 2>/dev/null || echo none)"
say stunnel "$(dpkg-query -W -f '${Version}' stunnel4 2>/dev/null || command -v stunnel4 stunnel || echo 'none: tests through it were left out')"
say strace "$(strace -V 2>/dev/null | head -1 | grep . || echo 'none: tests by it were left out')"
say python "$(python3 --version 2>&1)"
image=sanduk-claude:$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
say docker "$(docker version --format '{{.Server.Version}}' 2>/dev/null || echo 'none: its tests were left out')"
say base "$(docker image inspect --format '{{.Id}}' sanduk-base:bookworm 2>/dev/null || echo 'no sanduk-base:bookworm (make image-base): tests of docker were left out')"
say claude "$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null || echo "no $image (sanduk build): tests of the real agent were left out")"
