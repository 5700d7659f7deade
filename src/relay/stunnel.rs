//! `--tls stunnel:unix:PATH`: a stunnel of the operator speaks TLS, we speak plain HTTP into its socket. Who is at the other end of that
//! socket gets the key, so place and peer are checked. `sanduk stunnel-conf` prints what such a stunnel must be told: without `checkHost`
//! and `verifyChain` it only warns, and anybody's certificate gets the key.

use crate::catalog::providers::Provider;
use crate::error::Error;
use crate::limits;
use crate::relay::start::{Stunnel, Upstream};
use crate::relay::upstream::parse_upstream;
use crate::sys::net::{self, Conn};
use crate::sys::{file, proc};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

const S_IFMT: u32 = 0o170_000;
const S_IFSOCK: u32 = 0o140_000;
/// Only who owns a file in such a directory may remove or rename it.
const S_ISVTX: u32 = 0o1000;

/// What `--tls` says: `openssl` is `None`. Exit 2.
pub fn parse(how: &str) -> Result<Option<Stunnel>, Error> {
    if how == "openssl" {
        return Ok(None);
    }
    match how.strip_prefix("stunnel:unix:") {
        Some(path) if path.starts_with('/') => Ok(Some(Stunnel { socket: path.to_string(), owner: 0 })),
        Some(_) => Err(bad(how, "the path of its socket must be absolute")),
        None => Err(bad(how, "TLS is spoken by openssl (the default) or by stunnel:unix:PATH")),
    }
}

fn bad(how: &str, why: &str) -> Error {
    Error::wrong("take", format!("--tls {how}"), why)
}

/// Before confinement: the socket is there and is root's or ours, and nobody else could put another in its place. Its directory is
/// written down without links. Exit 2.
pub fn check(stunnel: &mut Stunnel) -> Result<(), Error> {
    let asked = stunnel.socket.clone();
    let refused = |why: String| Error::wrong("use stunnel at", asked.clone(), why);
    let path = PathBuf::from(&stunnel.socket);
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Err(refused("it names no file".into()));
    };
    #[expect(clippy::disallowed_methods, reason = "FILE-25 the directory of stunnel's socket, without links")]
    let dir = file::real_path(dir).map_err(|e| refused(e.to_string()))?;
    let us = proc::ids().0;
    for place in dir.ancestors() {
        #[expect(clippy::disallowed_methods, reason = "FILE-26 who may write where stunnel's socket lies")]
        let facts = file::facts(place).map_err(|e| refused(e.to_string()))?;
        // Above it a sticky directory will do: there nobody can replace what is another's.
        let others = facts.mode & 0o022 != 0 && (place == dir || facts.mode & S_ISVTX == 0);
        if others || (facts.uid != 0 && facts.uid != us) {
            let why = format!("others can put a socket of their own there: {}", place.display());
            return Err(refused(why).remedy("use a directory of yours alone, mode 0700"));
        }
    }
    let socket = dir.join(name);
    #[expect(clippy::disallowed_methods, reason = "FILE-27 stunnel's socket itself, no link")]
    let facts = file::Dir::open(&dir).and_then(|d| d.facts(name)).map_err(|e| {
        refused(e.to_string()).remedy("start stunnel first, with what `sanduk stunnel-conf PROVIDER` prints")
    })?;
    if facts.mode & S_IFMT != S_IFSOCK {
        return Err(refused("it is no socket".into()));
    }
    if facts.uid != 0 && facts.uid != us {
        return Err(refused(format!("it belongs to uid {}, not to root or to you", facts.uid)));
    }
    (stunnel.socket, stunnel.owner) = (socket.display().to_string(), us);
    Ok(())
}

/// A connection to it. Who listens must be root or who owned this program when `check` was made.
pub fn connect(stunnel: &Stunnel) -> io::Result<Conn> {
    let path = Path::new(&stunnel.socket);
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let dir = path.parent().unwrap_or(Path::new("/"));
    #[expect(clippy::disallowed_methods, reason = "NET-24 stunnel's socket")]
    let conn = net::connect_unix(dir, name, limits::CONNECT_TIME)?;
    let uid = conn.peer()?.uid;
    if uid != 0 && uid != stunnel.owner {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("uid {uid} listens there")));
    }
    Ok(conn)
}

/// What `sanduk stunnel-conf` prints. Exit 2.
pub fn print(
    provider: &Provider,
    url: Option<&str>,
    ca_file: Option<&str>,
    listen: Option<&str>,
) -> Result<String, Error> {
    let refused = |why: &str| Error::wrong("print", "stunnel's configuration", why);
    let mut upstream = parse_upstream(url.unwrap_or(&provider.upstream), false)?;
    if !upstream.tls {
        return Err(refused("the upstream is plain http: there is no TLS to speak")
            .remedy("give --upstream https://HOST"));
    }
    upstream.ca_file = ca_file.map(str::to_string);
    let socket = match listen.map(|text| text.strip_prefix("unix:").unwrap_or_default()) {
        None => place(&provider.name),
        Some(path) => path.to_string(),
    };
    // Both go into lines of a file.
    let plain = |path: &str| path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic());
    match plain(&socket) && ca_file.is_none_or(plain) {
        true => Ok(configuration(&upstream, &socket)),
        false => Err(refused("--listen unix:PATH and --ca-file must be absolute, without white space")),
    }
}

/// Where the printed stunnel listens: a directory that only its user can write. Root's relays have uids of their own, which must be able
/// to pass through it.
fn place(provider: &str) -> String {
    match proc::ids().0 {
        0 => format!("/run/sanduk/{provider}.sock"),
        uid => format!("/run/user/{uid}/sanduk/{provider}.sock"),
    }
}

/// stunnel's configuration (5.50 or newer), with how to start it. `socket` is absolute.
fn configuration(upstream: &Upstream, socket: &str) -> String {
    let host = upstream.host.as_str();
    let dir = Path::new(socket).parent().unwrap_or(Path::new("/")).display();
    let address = host.parse::<IpAddr>();
    let (check, connect, sni) = match address {
        Ok(IpAddr::V6(_)) => ("checkIP", format!("[{host}]:{}", upstream.port), String::new()),
        Ok(IpAddr::V4(_)) => ("checkIP", format!("{host}:{}", upstream.port), String::new()),
        Err(_) => ("checkHost", format!("{host}:{}", upstream.port), format!("sni = {host}\n")),
    };
    let trust = match &upstream.ca_file {
        Some(file) => format!("CAfile = {file}"),
        None => "CApath = /etc/ssl/certs".to_string(),
    };
    // Root's relays run as users of their own: they pass through the directory, and connect to a socket that all may connect to.
    let (mode, mask) = if proc::ids().0 == 0 { ("0711", "000") } else { ("0700", "077") };
    format!(
        "; stunnel for `sanduk --tls stunnel:unix:{socket}`.\n\
         ; Start it so, with this text in FILE (others may not write the directory, or they could listen in its place):\n\
         ;   install -d -m {mode} {dir} && (umask {mask} && exec stunnel FILE)\n\
         foreground = yes\n\
         pid =\n\
         syslog = no\n\
         debug = notice\n\
         \n\
         [provider]\n\
         client = yes\n\
         accept = {socket}\n\
         connect = {connect}\n\
         {sni}\
         ; Without the next two it only warns about a wrong certificate, and sends the key.\n\
         {check} = {host}\n\
         verifyChain = yes\n\
         {trust}\n\
         sslVersionMin = TLSv1.2\n\
         renegotiation = no\n\
         TIMEOUTconnect = 10\n\
         TIMEOUTbusy = 10\n\
         TIMEOUTidle = 900\n\
         TIMEOUTclose = 0\n"
    )
}
