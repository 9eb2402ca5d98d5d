#!/bin/sh
# Makes the certificates of these tests: kinds that rcgen cannot make. They are valid for a hundred years and worth nothing.
set -eu
cd "$(dirname "$0")"
days=36500
key() { # name curve, or the bits of RSA
    case "$2" in
        P-*) openssl genpkey -algorithm EC -pkeyopt "ec_paramgen_curve:$2" -out "$1.key" 2>/dev/null ;;
        *) openssl genpkey -algorithm RSA -pkeyopt "rsa_keygen_bits:$2" -out "$1.key" 2>/dev/null ;;
    esac
}
names="subjectAltName=DNS:api.example.test,IP:127.0.0.1"
ca() { # name curve hash
    key "$1" "$2"
    openssl req -x509 -new -key "$1.key" "-$3" -days $days -subj "/CN=$1" -addext basicConstraints=critical,CA:TRUE -out "$1.pem"
}
leaf() { # name curve ca hash
    key "$1" "$2"
    openssl req -new -key "$1.key" -subj "/O=example/CN=$1" -out "$1.csr"
    printf '%s\n' "$names" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA "$3.pem" -CAkey "$3.key" "-$4" -days $days -extfile "$1.ext" -out "$1.pem" 2>/dev/null
}
ca authority-p521 P-521 sha512
leaf server-of-p521 P-256 authority-p521 sha512
ca authority-p256 P-256 sha256
leaf server-sha512 P-256 authority-p256 sha512
leaf server-p521 P-521 authority-p256 sha256
ca authority-p384 P-384 sha384
leaf server-p384-sha512 P-256 authority-p384 sha512
ca authority-rsa1024 1024 sha256
leaf server-of-rsa1024 P-256 authority-rsa1024 sha256
# Version 1: no extensions.
key client-v1 P-256
openssl req -new -key client-v1.key -subj "/O=system:masters/CN=client-v1" -out client-v1.csr
openssl x509 -req -in client-v1.csr -CA authority-p256.pem -CAkey authority-p256.key -days $days -out client-v1.pem 2>/dev/null
key client-p521 P-521
openssl req -new -key client-p521.key -subj "/CN=client-p521" -out client-p521.csr
openssl x509 -req -in client-p521.csr -CA authority-p256.pem -CAkey authority-p256.key -days $days -out client-p521.pem 2>/dev/null
key client-rsa1024 1024
openssl req -new -key client-rsa1024.key -subj "/CN=client-rsa1024" -out client-rsa1024.csr
openssl x509 -req -in client-rsa1024.csr -CA authority-p256.pem -CAkey authority-p256.key -days $days -out client-rsa1024.pem 2>/dev/null
rm -f ./*.csr ./*.ext ./*.srl authority-*.key
