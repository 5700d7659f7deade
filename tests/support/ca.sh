#!/bin/sh
# Makes a throw-away CA and the server certificates of tests/tls.rs in the directory $1: NAME.pem (chain) and NAME.key for
# good wrong expired future unknown selfsigned clientonly; ca.pem and other.pem are the two CAs. Needs nothing but openssl.
set -eu
cd "$1"
log() { "$@" >>ca.log 2>&1 || { tail -5 ca.log >&2; exit 1; }; }
key() { log openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"; }

cat > ca.conf <<'CONF'
[req]
distinguished_name = dn
[dn]
[root]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[ca]
new_certs_dir = .
serial = serial
database = index
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[leaf]
basicConstraints = CA:FALSE
extendedKeyUsage = ${ENV::EKU}
subjectAltName = ${ENV::SAN}
CONF
export EKU=serverAuth SAN=DNS:unused.test

root() { # NAME COMMON-NAME
  key "$1"
  log openssl req -x509 -new -config ca.conf -extensions root -key "$1.key" -days 30 -subj "/CN=$2" -out "$1.pem"
}
# `openssl ca`, because `openssl x509` sets dates only since 3.4.
leaf() { # NAME CA START END
  key "$1"
  log openssl req -new -config ca.conf -key "$1.key" -subj "/CN=$1" -out "$1.csr"
  log openssl ca -batch -notext -config ca.conf -name ca -extensions leaf -cert "$2.pem" -keyfile "$2.key" -rand_serial \
    -startdate "$3" -enddate "$4" -in "$1.csr" -out "$1.pem"
}
: > index
root ca "Test CA"
root other "Another CA"
past=20200101000000Z
later=20490101000000Z
export SAN=DNS:api.test,DNS:deep.api.test,DNS:localhost,IP:127.0.0.1,IP:::1
leaf good ca $past $later
leaf expired ca $past 20200201000000Z
leaf future ca 20480101000000Z $later
leaf unknown other $past $later
(EKU=clientAuth; leaf clientonly ca $past $later)
(SAN=DNS:other.test; leaf wrong ca $past $later)
key selfsigned
log openssl req -x509 -new -config ca.conf -extensions leaf -key selfsigned.key -days 30 -subj /CN=selfsigned -out selfsigned.pem
