//! TLS before a rig's provider.

use crate::rig::Rig;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The server, and the authority that signed its certificate (for localhost and api.test).
pub struct Front {
    process: Child,
    pub port: u16,
    pub ca: PathBuf,
}

impl Front {
    pub fn new(rig: &Rig) -> Front {
        let support = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support").join(name);
        let dir = rig.place.join("ca");
        std::fs::create_dir(&dir).unwrap();
        assert!(Command::new("sh").arg(support("ca.sh")).arg(&dir).status().unwrap().success());
        let (host, port) = rig.address.split_once(':').unwrap();
        let mut command = Command::new("python3");
        command
            .arg(support("tls_front.py"))
            .args([dir.join("good.pem"), dir.join("good.key")])
            .args([host, port]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Front { process, port: line.trim().parse().unwrap(), ca: dir.join("ca.pem") }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
