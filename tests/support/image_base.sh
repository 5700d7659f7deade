#!/bin/sh
# A base image of Debian's signed packages, for a host that reaches a Debian mirror and no registry: `make image-base`. As root by
# debootstrap, as an ordinary user by mmdebstrap. Does nothing where the image is there. MIRROR=URL for another mirror.
set -eu
tag=${1:-sanduk-base:bookworm}
suite=bookworm
# The mirror that this host itself uses, by its own apt sources; none known: debootstrap's default, without the security archive.
known=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null |
  grep -oE 'https?://[^ ]*/debian/?( |$)' | head -1 | tr -d ' ')
mirror=${MIRROR:-${known%/}}
packages=ca-certificates,curl,git,jq,python3,ripgrep
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
say() { echo "image-base: $*"; }
fail() { say "$*" >&2; exit 4; }
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
PATH=$PATH:/usr/sbin:/sbin

have docker || fail "no docker on PATH"
words=$(docker image inspect --format '{{.Id}}' "$tag" 2>&1) && { say "$tag is there: $words"; exit 0; }
case $words in *"No such image"*) ;; *) fail "docker does not answer: $words" ;; esac
[ -r "$keyring" ] || fail "no $keyring: apt-get install debian-archive-keyring"

# Not /tmp: it is often without device nodes, and small.
work=$(mktemp -d -p /var/tmp sanduk-base.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

# Prints nothing but errors; leaves $work/root.tar.
make_root() {
  if [ "$(id -u)" = 0 ] && have debootstrap; then
    rm -rf "$work/root"
    debootstrap --variant=minbase --force-check-gpg --keyring="$keyring" --include="$packages" "$suite" "$work/root" $mirror >"$work/log" 2>&1 || return 1
    # What was mended since the release, now and in images built from this.
    [ -z "$mirror" ] || echo "deb $mirror-security $suite-security main" >>"$work/root/etc/apt/sources.list"
    chroot "$work/root" /bin/sh -c 'apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y upgrade && apt-get clean' >>"$work/log" 2>&1 || return 1
    rm -rf "$work/root/var/lib/apt/lists"/* "$work/root/etc/resolv.conf" "$work/root/etc/hostname"
    tar -C "$work/root" --numeric-owner -cf "$work/root.tar" .
  elif have mmdebstrap; then
    # Takes the security archive in by itself.
    mmdebstrap --variant=minbase --keyring="$keyring" --include="$packages" "$suite" "$work/root.tar" $mirror >"$work/log" 2>&1
  else
    fail "as root: apt-get install debootstrap; as a user: have mmdebstrap installed"
  fi
}

for try in 1 2 3; do
  say "making $tag of Debian's packages ($try of 3)"
  if make_root; then
    id=$(docker import --change 'CMD ["/bin/bash"]' "$work/root.tar" "$tag") || fail "docker import failed"
    say "made $tag: $id"
    exit 0
  fi
  sleep $((try * 5))
done
tail -5 "$work/log" >&2
fail "cannot make it of ${mirror:-the default mirror}"
