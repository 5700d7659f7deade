//! The relay's confinement, tried from inside it.

use super::*;

/// What Debian's and Alpine's openssl need; a path that is not there grants nothing.
fn openssl_rules(ports: Vec<u16>) -> confine::Relay {
    let openssl = exec::find_fixed("openssl").expect("openssl is installed");
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let arch = std::env::consts::ARCH;
    let debian = format!("/lib/{arch}-linux-gnu");
    let usr = format!("/usr/lib/{arch}-linux-gnu");
    let mut execute = vec![openssl];
    execute.extend(paths(&["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"]));
    execute.push(format!("/lib/ld-musl-{arch}.so.1").into());
    let mut read = paths(&["/etc/ssl", "/usr/lib/ssl/openssl.cnf", "/etc/ld.so.cache", "/usr/lib64"]);
    for library in [
        "libssl.so.3",
        "libcrypto.so.3",
        "libc.so.6",
        "libpthread.so.0",
        "libdl.so.2",
        "libz.so.1",
        "libzstd.so.1",
    ] {
        read.extend([&debian, &usr, &"/usr/lib".to_owned()].map(|d| Path::new(d).join(library)));
    }
    confine::Relay { read, execute, write: paths(&["/dev/null"]), ports, unix: false }
}

pub fn relay_filter_and_landlock() {
    let dir = Scratch::new();
    let allowed = net::listen_tcp(local(0)).unwrap();
    let other = net::listen_tcp(local(0)).unwrap();
    let unix = net::listen_unix(&dir.0, "engine.sock", 0o666).unwrap();
    let (mine, theirs) = net::pipe().unwrap();
    drop(mine);
    std::fs::write(dir.0.join("log"), b"0123456789").unwrap();
    let log = file::Dir::open(&dir.0).unwrap().append("log").unwrap();
    let allowed_port = allowed.address().unwrap().port().to_string();
    let other_port = other.address().unwrap().port().to_string();
    let variables = [
        ("ALLOWED", allowed_port.as_str()),
        ("OTHER", other_port.as_str()),
        ("DIR", dir.0.to_str().unwrap()),
        ("LOG", &log.as_raw_fd().to_string()),
    ];
    let mut child = start("relay", &variables, vec![theirs, log]);

    // The child prints the port of a listener that it bound before, then confines itself and accepts one connection on it.
    let out = net::Conn::new(child.stdout().unwrap());
    let first = line(&out);
    let port = first.strip_prefix("port=").unwrap().parse().unwrap();
    let client = net::connect_tcp(local(port), PATIENCE).unwrap();
    let mut hello = [0u8; 2];
    assert_eq!(client.read(&mut hello, PATIENCE).unwrap(), 2);
    assert_eq!(&hello, b"hi");

    // Two connections come to the allowed port: ours, then openssl's, which begins with a TLS handshake record (RFC 8446 5.1).
    drop(allowed.accept().unwrap());
    let tls = allowed.accept().unwrap();
    let mut record = [0u8; 2];
    assert_eq!(tls.read(&mut record, PATIENCE).unwrap(), 2);
    assert_eq!(record, [0x16, 0x03]);
    drop(tls);

    let mut found = Lines::new();
    while let Some((k, v)) = line(&out).split_once('=') {
        found.insert(k.to_owned(), v.to_owned());
    }
    assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Code(0)));
    expect(
        &found,
        &[
            ("unix", "EACCES"),
            ("unix_pair", "EACCES"),
            ("udp", "EACCES"),
            ("udp6", "EACCES"),
            ("netlink", "EACCES"),
            ("vsock", "EACCES"),
            ("mptcp", "EACCES"),
            ("shadow", "EACCES"),
            ("hosts", "EACCES"),
            ("status", "EACCES"),
            ("log_dir", "EACCES"),
            ("sh", "EACCES"),
            ("self", "EACCES"),
            ("getfd", "EACCES"),
            ("log_cut", "EACCES"),
            ("log_flags", "EACCES"),
            ("log_write", "ok"),
            ("allowed", "ok"),
            ("openssl", "ok"),
            ("s_client", "ok"),
        ],
    );
    // TCP rules came with ABI 4 (Linux 6.7); below that the filter and the uid are all there is, and the receipt says so.
    let ports = found["effect"].contains("TCP ports");
    expect(
        &found,
        &[("other", if ports { "EACCES" } else { "ok" }), ("bind", if ports { "EACCES" } else { "ok" })],
    );
    assert!(found["effect"].contains("seccomp"), "{found:?}");
    assert_eq!(std::fs::read(dir.0.join("log")).unwrap(), b"0123456789+");
    drop(unix);
}

pub fn relay_child() {
    let listener = net::listen_tcp(local(0)).unwrap();
    say(&format!("port={}", listener.address().unwrap().port()));
    let dir = PathBuf::from(std::env::var("DIR").unwrap());
    let log = net::inherited(number("LOG").into()).unwrap();
    let rules = openssl_rules(vec![number("ALLOWED")]);
    let openssl = rules.execute[0].to_str().unwrap().to_owned();
    let own = exec::own().unwrap();
    // Before the confinement everything asked for below is possible.
    for path in ["/etc/hosts", "/proc/self/status"] {
        file::read_named(Path::new(path), 1 << 20).unwrap();
    }
    net::connect_unix(&dir, "engine.sock", PATIENCE).unwrap();

    let effect = confine::relay(&rules, None).unwrap().join("; ");

    let conn = listener.accept().unwrap();
    conn.write_all(&[b"hi"], PATIENCE).unwrap();
    tell("allowed", net::connect_tcp(local(number("ALLOWED")), PATIENCE));
    // The handshake never ends: the other side only looks at the first bytes, and closes.
    let at = format!("127.0.0.1:{}", number("ALLOWED"));
    let s_client =
        exec::start(order(&openssl, &["s_client", "-connect", &at])).map(|mut c| c.wait(PATIENCE).unwrap());
    tell("s_client", s_client);
    say(&format!("effect={effect}"));
    tell("unix", net::connect_unix(&dir, "engine.sock", PATIENCE));
    let socket = |family, kind| rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    tell("udp", socket(AddressFamily::INET, SocketType::DGRAM));
    tell("udp6", socket(AddressFamily::INET6, SocketType::DGRAM));
    tell("netlink", socket(AddressFamily::NETLINK, SocketType::RAW));
    tell("vsock", socket(AddressFamily::VSOCK, SocketType::STREAM));
    let mptcp = rustix::net::Protocol::from_raw(262.try_into().unwrap());
    tell("mptcp", rustix::net::socket(AddressFamily::INET, SocketType::STREAM, Some(mptcp)));
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    tell("unix_pair", pair);
    tell("shadow", file::read_named(Path::new("/etc/shadow"), 1 << 20));
    tell("hosts", file::read_named(Path::new("/etc/hosts"), 1 << 20));
    tell("status", file::read_named(Path::new("/proc/self/status"), 1 << 20));
    tell("log_dir", file::Dir::open(&dir));
    tell("other", net::connect_tcp(local(number("OTHER")), PATIENCE));
    tell("bind", net::listen_tcp(local(0)));
    tell("sh", run("/bin/sh", &["-c", "exit 0"]));
    tell("self", run(own.to_str().unwrap(), &["--list"]));
    tell("getfd", pidfd_getfd());
    tell("log_cut", rustix::fs::ftruncate(&log, 0));
    tell("log_flags", rustix::fs::fcntl_setfl(&log, rustix::fs::OFlags::empty()));
    tell("log_write", rustix::io::write(&log, b"+"));
    tell("openssl", run(&openssl, &["version"]));
}

fn pidfd_getfd() -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let us = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(us, 0, PidfdGetfdFlags::empty())?)
}
