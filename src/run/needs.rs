//! What a run needs of the host: an engine that answers, and the agent's program where the engine has no image of it. Found before
//! anything is made. Called by `life`.

use crate::engine::plan::Mode;
use crate::engine::{bwrap, docker};
use crate::error::{Error, Exit};
use crate::limits;
use crate::run::daemon::{Daemon, Image};
use crate::run::spec::Spec;
use crate::sys::exec::{self, Ended, Feed};
use crate::sys::net::Conn;
use crate::sys::{file, serve};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};

/// An engine that answered.
pub struct Engine {
    /// Name and version, or name and endpoint, for the receipt.
    pub words: String,
    /// On docker.
    pub docker: Option<(Daemon, Image)>,
}

/// An engine that is there. Whether docker has the image is still being asked: that takes as long as keeper and relay take to start.
pub struct Asked {
    words: String,
    /// On docker.
    pub daemon: Option<Daemon>,
    image: Option<Receiver<Result<Image, Error>>>,
}

/// Checks that the engine is there, and asks docker for the image and for the network of `key-safe`.
pub fn engine(spec: &Spec) -> Result<Asked, Error> {
    let Some(boxed) = &spec.docker else {
        let words = format!("bwrap {}", bwrap_version(&spec.program)?);
        return Ok(Asked { words, daemon: None, image: None });
    };
    let daemon = Daemon::find(&spec.program, &boxed.place)?;
    let words = format!("docker at {}", daemon.endpoint);
    let build = format!("run `sanduk build --agent {}`, or name another with --image", spec.agent.name);
    let (tag, network, asker) = (boxed.image.clone(), spec.mode == Mode::KeySafe, daemon.clone());
    let (tell, image) = mpsc::sync_channel(1);
    let body = Box::new(move || {
        let image = asker.image(&tag, &build);
        let both = image.and_then(|image| match network {
            true => asker.network(docker::KEY_SAFE_NETWORK).map(|()| image),
            false => Ok(image),
        });
        let _ = tell.send(both);
    });
    #[expect(clippy::disallowed_methods, reason = "THREAD-44 docker is asked for the image")]
    serve::spawn("image", body).map_err(|e| Error::fault("ask", "docker", e))?;
    Ok(Asked { words, daemon: Some(daemon), image: Some(image) })
}

impl Asked {
    /// Waits for docker's answer.
    pub fn answer(self) -> Result<Engine, Error> {
        let docker = match (self.daemon, self.image) {
            (Some(daemon), Some(image)) => {
                let image = image.recv().map_err(|e| Error::fault("ask", "docker", e))??;
                Some((daemon, image))
            }
            _ => None,
        };
        Ok(Engine { words: self.words, docker })
    }
}

/// The version of a bwrap that will do.
pub fn bwrap_version(path: &Path) -> Result<String, Error> {
    let cannot = |why: String| {
        Error::new(Exit::Engine, "use", path.display().to_string(), why)
            .remedy("install bubblewrap 0.8 or newer")
    };
    bwrap::version(&answer(path).map_err(|e| cannot(e.to_string()))?).map_err(cannot)
}

/// On bwrap a box has the host's `/usr`: an agent whose program is not there is refused before anything exists. The built-in one
/// is part of this program. What an image has is seen when the agent is started.
pub fn program(spec: &Spec) -> Result<(), Error> {
    let agent = &spec.agent;
    let path = Path::new(agent.program());
    if spec.docker.is_some() || !path.starts_with("/usr") {
        return Ok(());
    }
    // A link out of /usr leads nowhere in the box.
    #[expect(clippy::disallowed_methods, reason = "FILE-140 the agent's program, where it leads")]
    let real = file::real_path(path);
    let why = match real {
        Ok(real) if real.starts_with("/usr") => return Ok(()),
        Ok(real) => format!("it leads to {}, which is not in the box", real.display()),
        Err(e) => e.to_string(),
    };
    let on = format!("{} of agent {} on bwrap", path.display(), agent.name);
    Err(Error::new(Exit::Engine, "start", on, why).remedy(format!(
        "put {} on this host, use an image of it (--runtime docker), or take --agent mini",
        path.display()
    )))
}

/// The first output of `program --version`.
fn answer(program: &Path) -> std::io::Result<String> {
    let order = exec::Order {
        program: program.to_path_buf(),
        args: vec!["--version".into()],
        env: Vec::new(),
        stdin: Feed::Null,
        stdout: Feed::Pipe,
        stderr: Feed::Null,
        inherit: Vec::new(),
        user: None,
        cwd: "/".into(),
        own_group: true,
    };
    #[expect(clippy::disallowed_methods, reason = "EXEC-42 bwrap --version")]
    let mut child = exec::start(order)?;
    let mut said = Vec::new();
    if let Some(out) = child.stdout().map(Conn::new) {
        let mut piece = [0u8; 256];
        while said.len() < limits::LAST_WORDS {
            match out.read(&mut piece, limits::CONTROL_TIME)? {
                0 => break,
                n => said.extend_from_slice(&piece[..n]),
            }
        }
    }
    match child.wait(limits::CONTROL_TIME)? {
        Some(Ended::Code(0)) => Ok(String::from_utf8_lossy(&said).into_owned()),
        Some(_) => Err(std::io::Error::other("it fails when asked for its version")),
        None => Err(std::io::ErrorKind::TimedOut.into()),
    }
}
