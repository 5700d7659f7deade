//! The relay's confinement as a run applies it: `relay::confinement::confined` with the upstream of a run, and then everything tried that a
//! relay in other hands would try. With root's uid where the tests are root's: filter and Landlock have to hold by themselves.

use super::*;
use sanduk::relay::confinement::confined;
use sanduk::relay::start::Upstream;
use sanduk::relay::upstream;
use sanduk::sys::attempt;

/// Refused by the filter itself, whoever asks.
const CALLS: [&str; 13] = [
    "mount",
    "umount",
    "fsopen",
    "open_tree",
    "setns",
    "ptrace",
    "bpf",
    "perf_event_open",
    "io_uring",
    "userfaultfd",
    "keyctl",
    "open_by_handle_at",
    "unshare",
];
/// Where docker listens, if it does.
const ENGINE: &str = "docker.sock";

pub fn box_b3_the_relays_own_rules_without_tls() {
    let found = tried("plain");
    // Not even openssl: this relay opens and starts nothing.
    expect(
        &found,
        &[("openssl", "EACCES"), ("certificates", "EACCES"), ("libraries", "EACCES"), ("null", "EACCES")],
    );
}

pub fn box_b3_the_relays_own_rules_with_tls() {
    let found = tried("tls");
    expect(&found, &[("openssl", "ok"), ("certificates", "ok"), ("null", "ok")]);
}

/// What the child said, with what neither relay may do already looked at.
fn tried(how: &str) -> Lines {
    let dir = Scratch::new();
    let _engine = net::listen_unix(&dir.0, ENGINE, 0o666).unwrap();
    let allowed = net::listen_tcp(local(0)).unwrap();
    let other = net::listen_tcp(local(0)).unwrap();
    std::fs::write(dir.0.join("record"), b"token").unwrap();
    let port = |l: &net::Listener| l.address().unwrap().port().to_string();
    let (allowed_port, other_port) = (port(&allowed), port(&other));
    let name = format!("sanduk-test-{}", proc::random_hex(8).unwrap());
    let _abstract = attempt::listen_abstract(&name).unwrap();
    let variables = [
        ("HOW", how),
        ("ALLOWED", allowed_port.as_str()),
        ("OTHER", other_port.as_str()),
        ("DIR", dir.0.to_str().unwrap()),
        ("ABSTRACT", name.as_str()),
    ];
    let found = lines(start("real", &variables, vec![]));
    let mut never = vec![
        "engine",
        "engine_of_this_host",
        "abstract",
        "udp",
        "udp6",
        "ping",
        "netlink",
        "packet",
        "vsock",
        "unix",
        "record",
        "record_write",
        "passwd",
        "shadow",
        "environ",
        "parent",
        "tmp",
        "new_file",
        "sh",
        "sh_by_loader",
        "docker",
        "self",
        "descriptor",
    ];
    never.retain(|name| found.get(*name).map(String::as_str) != Some("none here"));
    for name in never {
        assert_eq!(found.get(name).map(String::as_str), Some("EACCES"), "{name} in {found:#?}");
    }
    for call in CALLS {
        assert_eq!(found.get(call).map(String::as_str), Some("refused"), "{call} in {found:#?}");
    }
    let ports = found["effect"].contains("TCP ports");
    expect(&found, &[("allowed", "ok"), ("other", if ports { "EACCES" } else { "ok" })]);
    assert!(found["effect"].contains("seccomp") && found["effect"].contains("landlock"), "{found:#?}");
    found
}

pub fn real_child() {
    let dir = PathBuf::from(std::env::var("DIR").unwrap());
    let tls = std::env::var("HOW").unwrap() == "tls";
    let openssl = upstream::openssl().unwrap();
    let own = exec::own().unwrap();
    let here = |path: &str| Path::new(path).exists();
    let (loader, docker) =
        ("/lib64/ld-linux-x86-64.so.2", exec::find("docker", "/usr/local/bin:/usr/bin".as_ref()));
    let has = (here("/run/docker.sock"), here(loader));
    // Before, each of these is possible: a refusal below is the confinement's.
    net::connect_unix(&dir, ENGINE, PATIENCE).unwrap();
    attempt::connect_abstract(&std::env::var("ABSTRACT").unwrap()).unwrap();
    file::read_named(Path::new("/etc/passwd"), 1 << 20).unwrap();
    file::read_named(Path::new("/proc/self/environ"), 1 << 20).unwrap();
    run("/bin/sh", &["-c", "exit 0"]).unwrap();
    if proc::ids().0 == 0 && has.0 {
        net::connect_unix(Path::new("/run"), ENGINE, PATIENCE).unwrap();
    }

    let upstream = Upstream {
        tls,
        host: "attest.test".into(),
        port: number("ALLOWED"),
        addresses: vec![local(number("ALLOWED"))],
        ca_file: None,
        openssl: openssl.clone(),
        ..Upstream::default()
    };
    let effect = confined(&upstream, None);
    say(&format!("effect={}", effect.unwrap().join("; ")));

    let maybe = |name: &str, there: bool, result: io::Result<()>| match there {
        true => tell(name, result),
        false => say(&format!("{name}=none here")),
    };
    tell("allowed", net::connect_tcp(local(number("ALLOWED")), PATIENCE));
    tell("other", net::connect_tcp(local(number("OTHER")), PATIENCE));
    tell("engine", net::connect_unix(&dir, ENGINE, PATIENCE));
    maybe("engine_of_this_host", has.0, net::connect_unix(Path::new("/run"), ENGINE, PATIENCE).map(drop));
    tell("abstract", attempt::connect_abstract(&std::env::var("ABSTRACT").unwrap()));
    let socket = |family, kind| rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    tell("udp", socket(AddressFamily::INET, SocketType::DGRAM));
    tell("udp6", socket(AddressFamily::INET6, SocketType::DGRAM));
    tell("ping", attempt::ping(local(0), PATIENCE));
    tell("netlink", attempt::change_interface());
    tell("packet", attempt::packet_socket());
    tell("vsock", socket(AddressFamily::VSOCK, SocketType::STREAM));
    tell("unix", socket(AddressFamily::UNIX, SocketType::STREAM));
    let read = |path: &Path| file::read_named(path, 1 << 20);
    tell("record", read(&dir.join("record")));
    tell("record_write", attempt::open_to_write(&dir.join("record")));
    tell("passwd", read(Path::new("/etc/passwd")));
    tell("shadow", read(Path::new("/etc/shadow")));
    tell("environ", read(Path::new("/proc/self/environ")));
    tell("parent", read(Path::new(&format!("/proc/{}/environ", std::os::unix::process::parent_id()))));
    tell("tmp", file::Dir::open(&std::env::temp_dir()));
    tell("new_file", attempt::make_file(&dir.join("new"), 0o600));
    tell("sh", run("/bin/sh", &["-c", "exit 0"]));
    maybe(
        "sh_by_loader",
        has.1,
        run(loader, &["/bin/sh", "-c", "exit 0"]).map(drop).map_err(refused_by_loader),
    );
    let docker_runs = docker.as_ref().map_or(Ok(()), |d| run(d.to_str().unwrap(), &["--version"]).map(drop));
    maybe("docker", docker.is_some(), docker_runs);
    tell("self", run(own.to_str().unwrap(), &["--list"]));
    tell("descriptor", attempt::take_descriptor(i32::try_from(std::os::unix::process::parent_id()).unwrap()));
    for call in attempt::CALLS.iter().filter(|c| CALLS.contains(&c.0)) {
        say(&format!("{}={}", call.0, attempt::refused(call).map_or_else(|why| why, |_| "refused".into())));
    }
    tell("openssl", run(&openssl, &["version"]));
    tell("certificates", file::Dir::open(Path::new("/etc/ssl/certs")));
    tell("libraries", file::Dir::open(Path::new("/usr/lib")));
    tell("null", attempt::open_to_write(Path::new("/dev/null")));
}

/// The loader may start (openssl needs it) and then cannot open what it is told to load: it ends with 127.
fn refused_by_loader(e: io::Error) -> io::Error {
    match e.to_string().contains("Code(127)") {
        true => Errno::ACCESS.into(),
        false => e,
    }
}
