#!/bin/sh
# Last lines of `make test`: on what it ran, and what this machine could not run.
say() { printf '  %-10s %s\n' "$1" "$2"; }
echo "what ran, and on what:"
say kernel "$(uname -sr)"
say user "$(id -un) ($(id -u))"
say rust "$(rustc --version)"
say openssl "$(openssl version 2>/dev/null || echo none)"
say bwrap "$(bwrap --version 2>/dev/null || echo none)"
say python "$(python3 --version 2>&1)"
