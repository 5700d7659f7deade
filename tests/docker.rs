//! Whole runs, mini in a box on docker, against the daemon of this machine; all of it is left out, with one line, where there is
//! none, or no image to run. Nothing is removed here but what a test made, by its id.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "sealed/checks.rs"]
mod checks;
#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use rig::On::Docker;
use rig::{IMAGE, KEY, Rig, docker, ran, root, script, signal, until};
use serde_json::Value;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Whether there is a daemon with the image.
fn ready() -> bool {
    static READY: OnceLock<bool> = OnceLock::new();
    *READY.get_or_init(|| {
        let look = Command::new("docker").args(["image", "inspect", IMAGE]).stdin(Stdio::null()).output();
        let there = look.is_ok_and(|done| done.status.success());
        if !there {
            #[expect(clippy::disallowed_macros, reason = "tests")]
            let () = eprintln!(
                "docker: no daemon, or it has no image {IMAGE} (make image-base): these tests are left out"
            );
        }
        there
    })
}

/// A stranger's object of the daemon's: removed, by its id, when dropped.
struct Theirs(&'static str, String);

impl Drop for Theirs {
    fn drop(&mut self) {
        // A container's anonymous volumes with it.
        let flags: &[&str] = if self.0 == "container" { &["rm", "-f", "-v"] } else { &["rm", "-f"] };
        let _ = Command::new("docker").arg(self.0).args(flags).arg(&self.1).output();
    }
}

fn theirs(args: &[&str]) -> Theirs {
    Theirs("container", docker(&[&["create", "--network", "none"][..], args].concat()).trim().to_string())
}

fn exists(id: &str) -> bool {
    let look = Command::new("docker").args(["container", "inspect", id]).output().unwrap();
    look.status.success()
}

fn inspect(id: &str) -> Value {
    let all: Value = serde_json::from_str(&docker(&["container", "inspect", id])).unwrap();
    all[0].clone()
}

#[test]
fn box_b09_b10_no_byte_of_the_key_is_in_the_box() {
    if ready() {
        checks::box_b09_b10_no_byte_of_the_key_is_in_the_box(Docker);
    }
}

#[test]
fn box_b05_the_network_is_loopback_and_nothing_else() {
    if ready() {
        checks::box_b05_the_network_is_loopback_and_nothing_else(Docker);
    }
}

#[test]
fn box_b02_b04_b07_the_kernel_gives_no_way_out() {
    if ready() {
        checks::box_b02_b04_b07_the_kernel_gives_no_way_out(Docker);
    }
}

#[test]
fn box_b01_host_routes_are_closed_to_the_box() {
    if ready() {
        checks::box_b01_host_routes_are_closed_to_the_box(Docker);
    }
}

#[test]
fn box_b14_an_exchanged_control_socket_is_not_followed() {
    if ready() {
        checks::box_b14_an_exchanged_control_socket_is_not_followed(Docker);
    }
}

#[test]
fn box_b38_the_channel_has_a_neutral_name() {
    if ready() {
        checks::box_b38_the_channel_has_a_neutral_name(Docker);
    }
}

#[test]
fn bodies_beside_the_log() {
    if ready() {
        checks::bodies_beside_the_log(Docker);
    }
}

/// `audit/argv.txt`: what docker is told, word for word.
#[test]
fn arguments_are_those_of_the_ledger() {
    use sanduk::engine::docker::{Container, argv, call};
    use sanduk::engine::plan::{Mask, Mode, Mount, Plan};
    let mount = |host: &str, dest: &str, readonly| Mount { host: host.into(), dest: dest.into(), readonly };
    let mask = |path: &str, directory| Mask { path: path.into(), directory };
    let plan = Plan {
        user: (1234, 5678),
        channel: "/tmp/sbx-CHANNEL".into(),
        workdir: "/WORKDIR".into(),
        mounts: vec![mount("/MOUNT", "/DEST", false), mount("/MOUNT", "/RO", true)],
        masks: vec![mask("FILE", false), mask("DIR", true)],
        hole: None,
    };
    let ledger =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/argv.txt")).unwrap();
    let container = Container {
        run: "RUN".into(),
        name: "sbx-CHANNEL".into(),
        agent: "AGENT".into(),
        image: "IMAGE".into(),
        mode: Mode::Sealed,
        network: None,
        cpus: 2000,
        memory: 4 << 30,
    };
    let argv = argv(&plan, &container).unwrap();
    let words: Vec<&str> = argv.iter().map(|a| a.to_str().unwrap()).collect();
    let ours = words.join(" ").replace("1234", "UID").replace("5678", "GID");
    assert!(ledger.lines().any(|l| l == format!("EXEC-45 docker | {ours}")), "not in the ledger: {ours}");
    assert!(ledger.contains(&format!("stands: {}", call("ENDPOINT").join(" "))));
}

/// Promises 1 and 5 on docker: files are the caller's, the receipt names the image, nothing is left, and neither the daemon's
/// description of the box, nor its logs, nor its events hold a secret or the task.
#[test]
fn box_b08_b09_b12_what_the_engine_knows_of_a_run() {
    if !ready() {
        return;
    }
    let rig =
        Rig::on(Docker, &script(&["id -u > who; mkdir d; echo hi > d/f; sleep 2", "env > env"], "done"));
    // BOX B12: the caller's configuration would put proxies with passwords into the box, and credential helpers to work.
    let config = rig.place.join(".docker");
    std::fs::create_dir(&config).unwrap();
    let proxies = r#"{"proxies":{"default":{"httpProxy":"http://user:PROXYWORD@proxy:1"}},"credsStore":"nope","detachKeys":"ctrl-x"}"#;
    std::fs::write(config.join("config.json"), proxies).unwrap();
    let child = rig.start(&["TASKWORD do it", "--env", "GREETING=ENVWORD"]);
    let record = rig.record_with("container");
    let id = &record["container"];
    until("the tool call", || rig.work.join("d/f").exists().then_some(()));
    let known = inspect(id);
    let logs = Command::new("docker").args(["logs", id]).output().unwrap();
    let done = ran(child.wait_with_output().unwrap()).code(0);
    // `--until` is in whole seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let events =
        docker(&["events", "--since", "120s", "--until", "0s", "--filter", &format!("container={id}")]);
    assert!(events.contains("create") && events.contains("destroy"), "{events}");
    let logs = String::from_utf8_lossy(&[logs.stdout, logs.stderr].concat()).into_owned();
    for (place, text) in [("inspect", known.to_string()), ("logs", logs), ("events", events)] {
        for (what, secret) in [
            ("the key", KEY),
            ("the token", record["token"].as_str()),
            ("the control secret", record["control_secret"].as_str()),
            ("the task", "TASKWORD"),
            ("a variable", "ENVWORD"),
            ("a proxy", "PROXYWORD"),
        ] {
            assert!(!text.contains(secret), "{place} holds {what}: {text}");
        }
    }
    let env = std::fs::read_to_string(rig.work.join("env")).unwrap();
    assert!(env.contains("GREETING=ENVWORD") && !env.contains("PROXYWORD"), "{env}");

    let uid = std::fs::metadata(&rig.work).unwrap().uid();
    for file in ["who", "d", "d/f"] {
        assert_eq!(std::fs::metadata(rig.work.join(file)).unwrap().uid(), uid, "{file}");
    }
    assert_eq!(std::fs::read_to_string(rig.work.join("who")).unwrap().trim(), uid.to_string());
    let receipt = rig.receipt();
    assert_eq!(receipt["image"]["tag"], IMAGE);
    let image = docker(&["image", "inspect", "--format", "{{.Id}}", IMAGE]);
    assert_eq!(
        (receipt["image"]["id"].as_str(), known["Image"].as_str()),
        (Some(image.trim()), Some(image.trim()))
    );
    assert!(done.err.contains("2 calls") || done.err.contains("3 calls"), "{}", done.err);
    rig.assert_clean();

    let host = &known["HostConfig"];
    for (field, value) in [
        ("NetworkMode", Value::from("none")),
        ("ReadonlyRootfs", true.into()),
        ("Privileged", false.into()),
        ("IpcMode", "private".into()),
        ("PidsLimit", 1024.into()),
        ("Memory", (4_u64 << 30).into()),
        ("MemorySwap", (4_u64 << 30).into()),
        ("AutoRemove", false.into()),
    ] {
        assert_eq!(host[field], value, "{field}");
    }
    assert_eq!(host["CapDrop"][0], "ALL");
    assert_eq!(host["LogConfig"]["Type"], "none");
    assert_eq!(host["RestartPolicy"]["Name"], "no");
    assert_eq!(known["Config"]["Labels"]["sanduk.run"], rig.kept().file_name().unwrap().to_str().unwrap());
    // BOX B7: our role is PID 1, no init above it.
    assert!(host["Init"].is_null() || host["Init"] == false, "{}", host["Init"]);
}

/// BOX B12: a volume and a health check of the image's. BOX B13: a label of the image's makes no stranger ours.
#[test]
fn box_b12_b13_an_image_with_surprises() {
    if !ready() {
        return;
    }
    let base = theirs(&[IMAGE, "true"]);
    let changes = [
        "VOLUME /data",
        "HEALTHCHECK --interval=1s CMD touch /work/health",
        "LABEL sanduk.run=00000000000000000000000000000000",
        "ENTRYPOINT [\"/bin/false\"]",
        "ENV HTTP_PROXY=http://image",
        "USER nobody",
    ];
    let args: Vec<&str> = changes.iter().flat_map(|c| ["--change", c]).collect();
    let image = Theirs("image", docker(&[&["commit"][..], &args, &[&base.1]].concat()).trim().to_string());
    let stranger = theirs(&[&image.1]);
    let rig =
        Rig::with(&script(&["env > env; sleep 2"], "done"), &["--runtime", "docker", "--image", &image.1]);
    let child = rig.start(&["x"]);
    let id = rig.record_with("container")["container"].clone();
    let known = inspect(&id);
    let volumes: Vec<&str> =
        known["Mounts"].as_array().unwrap().iter().filter_map(|m| m["Name"].as_str()).collect();
    assert_eq!(volumes.len(), 1, "the image has a volume: {}", known["Mounts"]);
    assert_ne!(known["Config"]["Labels"]["sanduk.run"], "00000000000000000000000000000000");
    ran(child.wait_with_output().unwrap()).code(0);
    rig.assert_clean();
    assert!(
        !Command::new("docker").args(["volume", "inspect", volumes[0]]).output().unwrap().status.success()
    );
    assert!(!rig.work.join("health").exists(), "the health check ran");
    let env = std::fs::read_to_string(rig.work.join("env")).unwrap();
    assert!(!env.contains("http://image"), "the image's variables reached the agent: {env}");
    assert!(exists(&stranger.1));
}

/// BOX B13: a dead run's container is removed by the next command, by the run's own label; a stranger's with a like name, a like
/// label, or our own image stays. What lives stays too.
#[test]
fn box_b13_a_sweep_touches_only_what_is_ours() {
    if !ready() {
        return;
    }
    let rig = Rig::on(Docker, &script(&["sleep 60"], "done"));
    let mut child = rig.start(&["x"]);
    let record = rig.record_with("container");
    let id = &record["container"];
    let run = inspect(id)["Config"]["Labels"]["sanduk.run"].as_str().unwrap().to_string();
    let strangers = [
        theirs(&["--label", &format!("sanduk.run={run}0"), IMAGE, "true"]),
        theirs(&["--label", &format!("sanduk.ran={run}"), IMAGE, "true"]),
        theirs(&["--name", &format!("{}-x", record["channel"]), IMAGE, "true"]),
    ];
    // All that could remove it dies at once; the daemon keeps the box.
    signal(record["keeper_pid"].parse().unwrap(), "STOP");
    signal(child.id(), "KILL");
    signal(record["keeper_pid"].parse().unwrap(), "KILL");
    child.wait().unwrap();
    assert!(exists(id) && !rig.records().is_empty());
    let live = Rig::on(Docker, &script(&["touch up; sleep 4"], "live is done"));
    let mut command = live.command(&["x"]);
    let living = command.env("XDG_STATE_HOME", &rig.state).stdout(Stdio::piped()).stderr(Stdio::piped());
    let living = living.spawn().unwrap();
    until("the sweep", || (!exists(id)).then_some(()));
    until("the other run", || live.work.join("up").exists().then_some(()));
    // A third command meets the second's record, which is locked.
    let next = Rig::on(Docker, &script(&[], "next"));
    let mut command = next.command(&["x"]);
    ran(command.env("XDG_STATE_HOME", &rig.state).output().unwrap()).code(0);
    let said = ran(living.wait_with_output().unwrap()).code(0);
    assert!(said.err.contains("removed what the dead run"), "{}", said.err);
    rig.assert_clean();
    for stranger in &strangers {
        assert!(exists(&stranger.1), "a stranger's container is gone");
    }
}

/// TRAPS 8 and 10: a daemon that does not answer is not one without containers: the record stays, and nothing else is held up.
#[test]
fn trap_08_10_a_record_is_kept_while_the_engine_does_not_answer() {
    if !ready() {
        return;
    }
    let rig = Rig::on(Docker, &script(&[], "done"));
    let dead = rig.state.join("sanduk/runs/0123456789abcdef0123456789abcdef");
    std::fs::create_dir_all(&dead).unwrap();
    std::fs::set_permissions(rig.state.join("sanduk"), PermissionsExt::from_mode(0o700)).unwrap();
    let program = String::from_utf8(Command::new("which").arg("docker").output().unwrap().stdout).unwrap();
    let lines = format!(
        "kind=run\nengine=docker\ndocker={}\nendpoint=unix:///nonexistent/docker.sock\nasked=yes\ncontainer={}\n",
        program.trim(),
        "f".repeat(64)
    );
    std::fs::write(dead.join("record"), lines).unwrap();
    rig.run(&["x"])
        .code(0)
        .says("cannot remove what the dead run")
        .says("Cannot connect")
        .says("its record is kept");
    assert!(dead.join("record").exists());
}

/// CHECKLIST K3 and K4: whatever is wrong with the engine is one line, exit 4, with what to do, and never a step down to bwrap.
#[test]
fn trap_44_45_an_engine_that_cannot() {
    let rig = Rig::with(&script(&[], "done"), &["--image", IMAGE]);
    let bin = rig.place.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let told = |host: Option<&str>, parts: &[&str]| {
        std::fs::write(
            bin.join("docker"),
            "#!/bin/sh\necho \"Error response from daemon: told $*\" >&2; exit 1\n",
        )
        .unwrap();
        std::fs::set_permissions(bin.join("docker"), PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = rig.command(&["x"]);
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        if let Some(host) = host {
            command.env("DOCKER_HOST", host);
        }
        let ran = ran(command.output().unwrap()).code(4);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        for part in parts {
            assert!(ran.err.contains(part), "no {part:?} in {}", ran.err);
        }
    };
    told(Some("tcp://127.0.0.1:2375"), &["tcp://127.0.0.1:2375", "not on this host", "unset DOCKER_HOST"]);
    told(Some("ssh://me@there"), &["not on this host"]);
    told(Some("unix:///nonexistent/d.sock"), &["does not answer", "systemctl start docker"]);
    told(Some("unix:///home/me/.docker/desktop/docker.sock"), &["virtual machine"]);
    told(Some("unix:///run/user/1000/docker.sock"), &["rootless", "--runtime bwrap"]);
    // A context of the caller's is asked for where it leads; this one's command line cannot say.
    let config = rig.place.join(".docker");
    std::fs::create_dir(&config).unwrap();
    std::fs::write(config.join("config.json"), r#"{"currentContext":"far"}"#).unwrap();
    told(None, &["context far", "told --config"]);
    // The snap package.
    std::fs::remove_file(bin.join("docker")).unwrap();
    std::fs::create_dir_all(rig.place.join("snapped/bin")).unwrap();
    std::fs::write(rig.place.join("snapped/bin/snap"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(rig.place.join("snapped/bin/snap"), PermissionsExt::from_mode(0o755)).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(rig.place.join("d.sock")).unwrap();
    let host = format!("unix://{}/d.sock", rig.place.display());
    std::os::unix::fs::symlink(rig.place.join("snapped/bin/snap"), bin.join("docker")).unwrap();
    let mut command = rig.command(&["x"]);
    command.env("PATH", &bin).env("DOCKER_HOST", &host);
    ran(command.output().unwrap()).code(4).says("snap package");
    drop(socket);
    // Asked for by name and not there.
    std::fs::remove_file(bin.join("docker")).unwrap();
    let mut command = rig.command(&["x", "--runtime", "docker"]);
    ran(command.env("PATH", &bin).output().unwrap()).code(4).says("not on PATH").says("docker.io");
    rig.assert_clean();
    assert!(rig::list(&rig.state.join("sanduk/receipts")).is_empty(), "a receipt of a run that never was");
}

/// Not a member of the group: the remedy says which.
#[test]
fn permission_denied_says_which_group() {
    if !ready() || !root() {
        return;
    }
    let rig = Rig::on(Docker, &script(&[], "done"));
    chown(&rig.work, Some(4242), Some(4242)).unwrap();
    std::fs::create_dir(&rig.state).unwrap();
    chown(&rig.state, Some(4242), Some(4242)).unwrap();
    ran(as_user(&rig, &["--clear-groups"]).output().unwrap())
        .code(4)
        .says("permission denied")
        .says("group docker");
}

/// `sanduk run` of `rig` as uid 4242, by setpriv(1).
fn as_user(rig: &Rig, groups: &[&str]) -> Command {
    let run = rig.command(&["x"]);
    let binary = rig.place.join("sanduk");
    if !binary.exists() {
        std::fs::copy(run.get_program(), &binary).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "4242", "--regid", "4242"]).args(groups).arg(binary).args(run.get_args());
    command.env_clear().current_dir(&rig.place).stdin(Stdio::null());
    for (name, value) in run.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command
}

/// An ordinary user in the docker group: the box is that user.
#[test]
fn an_ordinary_user_of_the_docker_group() {
    if !ready() || !root() {
        return;
    }
    let rig = Rig::on(Docker, &script(&["id > who"], "done"));
    chown(&rig.work, Some(4242), Some(4242)).unwrap();
    std::fs::create_dir(&rig.state).unwrap();
    chown(&rig.state, Some(4242), Some(4242)).unwrap();
    let group = std::fs::metadata("/var/run/docker.sock").unwrap().gid().to_string();
    ran(as_user(&rig, &["--groups", &group]).output().unwrap()).code(0);
    let who = std::fs::read_to_string(rig.work.join("who")).unwrap();
    assert!(
        who.starts_with("uid=4242") && who.contains("groups=4242") && !who.contains(&format!(",{group}")),
        "{who}"
    );
    assert_eq!(std::fs::metadata(rig.work.join("who")).unwrap().uid(), 4242);
    rig.assert_clean();
}

/// TRAPS 34: every character of a path; masks, read-only and writable mounts.
#[test]
fn trap_34_paths_with_every_character() {
    if !ready() {
        return;
    }
    let rig = Rig::on(
        Docker,
        &script(
            &[
                "cat secret hidden/x; cat '/a,b \"c\"=d/f' > copy; echo no > '/a,b \"c\"=d/g'; echo yes > '/rw/,=\"'; true",
            ],
            "done",
        ),
    );
    let (odd, rw) = (rig.place.join("src=etc,readonly \"q\" 'ü"), rig.place.join("rw,dst=x"));
    let work = rig.place.join("w,o \"r\"=k");
    for dir in [&odd, &rw, &work, &work.join("hidden")] {
        std::fs::create_dir(dir).unwrap();
        rig.give(dir);
    }
    std::fs::write(odd.join("f"), "found").unwrap();
    std::fs::write(work.join("secret"), "SECRETWORD").unwrap();
    std::fs::write(work.join("hidden/x"), "SECRETWORD").unwrap();
    let mounts = [format!("{}:/a,b \"c\"=d:ro", odd.display()), format!("{}:/rw", rw.display())];
    let args = ["x", "--mount", &mounts[0], "--mount", &mounts[1], "--mask", "secret", "--mask", "hidden"];
    ran(rig.command_in(&work, &args).output().unwrap()).code(0);
    assert_eq!(std::fs::read_to_string(work.join("copy")).unwrap(), "found");
    assert!(rw.join(",=\"").exists() && !odd.join("g").exists());
    assert!(!rig.bodies().iter().any(|b| b.contains("SECRETWORD")));
    // A line break is refused by name, before anything is made.
    let broken = rig.place.join("line\nbreak");
    std::fs::create_dir(&broken).unwrap();
    rig.give(&broken);
    ran(rig.command_in(&broken, &["x"]).output().unwrap()).code(2).says("line break");
    rig.assert_clean();
}

/// TRAPS 24: never above the host's processors. The limits arrive in the box's control group.
#[test]
fn trap_24_limits_of_the_box() {
    if !ready() {
        return;
    }
    let look = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null > memory; \
                cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null > pids; sleep 1";
    let rig = Rig::on(Docker, &script(&[look], "done"));
    let child = rig.start(&["x", "--memory", "256m", "--cpus", "4096"]);
    let host = inspect(&rig.record_with("container")["container"])["HostConfig"].clone();
    let out = ran(child.wait_with_output().unwrap()).code(0);
    assert!(out.err.contains("--cpus 4096: this host has"), "{}", out.err);
    let processors = u64::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    assert_eq!(host["NanoCpus"], processors * 1_000_000_000);
    let read = |name: &str| std::fs::read_to_string(rig.work.join(name)).unwrap().trim().to_string();
    assert_eq!((read("memory"), read("pids")), ((256 << 20).to_string(), "1024".into()));
    rig.run(&["x", "--memory", "lots"]).code(2).says("--memory lots");
    rig.run(&["x", "--cpus", "0"]).code(2).says("--cpus 0");
}

/// `--env` may add, not override; nothing of the value is repeated in the refusal.
#[test]
fn variables_of_the_operator() {
    let rig = Rig::on(Docker, &script(&[], "done"));
    for (text, why) in [
        ("HOME=/SECRETWORD", "the run sets that variable itself"),
        ("SANDUK_MINI_TOKEN=SECRETWORD", "the run sets that variable itself"),
        ("=SECRETWORD", "letters, digits"),
        ("A B=SECRETWORD", "letters, digits"),
        ("PLAIN", "NAME=VALUE"),
    ] {
        let ran = rig.run(&["x", "--env", text, "--dry-run"]).code(2).says(why);
        assert!(!ran.err.contains("SECRETWORD"), "{}", ran.err);
    }
    rig.run(&["x", "--env", "A=1", "--env", "A=2", "--dry-run"]).code(2).says("given twice");
}

/// TRAPS 46: `--dry-run` prints the command and changes nothing; it needs no daemon.
#[test]
fn trap_46_dry_run_needs_no_daemon() {
    let rig = Rig::with(&script(&[], "done"), &["--runtime", "docker", "--image", IMAGE]);
    let bin = rig.place.join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("docker"), format!("#!/bin/sh\ntouch {}/called\n", rig.place.display())).unwrap();
    std::fs::set_permissions(bin.join("docker"), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = rig.command(&["x", "--dry-run"]);
    let out =
        ran(command.env("PATH", &bin).env("DOCKER_HOST", "unix:///nonexistent").output().unwrap()).code(0);
    assert!(out.out.contains("-H unix:///nonexistent run -d \\\n  --name"), "{}", out.out);
    assert!(out.out.contains("--network none") && !out.out.contains(KEY), "{}", out.out);
    assert!(!rig.place.join("called").exists() && !rig.state.exists());
}

/// An image that is not there is exit 2 and how to build it; one without our agent's needs is the agent's affair.
#[test]
fn an_image_that_is_not_there() {
    if !ready() {
        return;
    }
    let rig = Rig::with(&script(&[], "done"), &["--runtime", "docker", "--image", "sanduk-nobody-has:1"]);
    rig.run(&["x"]).code(2).says("sanduk-nobody-has:1").says("sanduk build --agent mini");
    rig.assert_clean();
}

/// An image without the agent's program: exit 4, naming both.
#[test]
fn an_image_without_the_agent() {
    if !ready() {
        return;
    }
    let rig = Rig::on(Docker, &script(&[], "done"));
    let mut command = rig.command(&["x"]);
    let args: Vec<_> = command.get_args().map(|a| a.to_os_string()).collect();
    let args = args.iter().map(|a| if a == "mini" { "claude".into() } else { a.clone() });
    let mut other = Command::new(command.get_program());
    other.args(args).env_clear().current_dir(&rig.place).stdin(Stdio::null());
    other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command = other;
    ran(command.output().unwrap()).code(4).says(IMAGE).says("claude").says("No such file");
    rig.assert_clean();
}

/// TRAPS 40: a network of the name that is not what this program makes is refused, with how to be rid of it.
#[test]
fn trap_40_a_network_that_somebody_changed() {
    let rig = Rig::with(&script(&[], "done"), &["--runtime", "docker", "--mode", "key-safe", "--image", "i"]);
    let bin = rig.place.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(rig.place.join("d.sock")).unwrap();
    for network in
        ["bridge true false yes", "bridge false true yes", "bridge false false ", "macvlan false  yes"]
    {
        let body = format!(
            "#!/bin/sh\ncase \"$*\" in *'image inspect'*) echo sha256:0;; *) echo '{network}';; esac\n"
        );
        std::fs::write(bin.join("docker"), body).unwrap();
        std::fs::set_permissions(bin.join("docker"), PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = rig.command(&["x"]);
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        command.env("DOCKER_HOST", format!("unix://{}/d.sock", rig.place.display()));
        ran(command.output().unwrap()).code(4).says("docker network rm sanduk-open");
    }
    assert!(rig.records().is_empty());
}

/// `--as-root`: a directory of root's is refused without it, and printed with it; the box then has uid 0 and no capability.
#[test]
fn box_b04_a_box_of_root_is_asked_for_by_name() {
    if !ready() || !root() {
        return;
    }
    let look = "id -u > who; grep CapEff /proc/self/status >> who; perl -e 'chmod 04755, \"/work/who\"'; cat /proc/1/environ; true";
    let rig = Rig::on(Docker, &script(&[look], "done"));
    chown(&rig.work, Some(0), Some(0)).unwrap();
    rig.run(&["x"]).code(2).says("--as-root");
    rig.run(&["x", "--as-root"]).code(0).says("--as-root: the agent is uid 0");
    let who = std::fs::read_to_string(rig.work.join("who")).unwrap();
    assert_eq!(who.lines().next(), Some("0"));
    assert!(who.contains("CapEff:\t0000000000000000"), "{who}");
    assert_eq!(
        std::fs::metadata(rig.work.join("who")).unwrap().mode() & 0o7000,
        0,
        "a set-id file of root's"
    );
    assert!(rig.bodies().last().unwrap().contains("Permission denied"), "PID 1 is readable");
    rig.give(&rig.work);
    rig.run(&["x", "--as-root"]).code(2).says("no effect");
    rig.assert_clean();
}

/// `--keep`: the box stays, stopped, with how to remove it; no sweep takes it.
#[test]
fn a_kept_box_stays() {
    if !ready() {
        return;
    }
    let rig = Rig::on(Docker, &script(&["true"], "done"));
    let kept = rig.run(&["x", "--keep"]).code(0).says("docker rm -v ");
    let all = rig.containers();
    assert_eq!(all.len(), 1);
    let box_of = Theirs("container", all[0].clone());
    let (state, name) = (inspect(&box_of.1)["State"].clone(), inspect(&box_of.1)["Name"].clone());
    assert_eq!(state["Running"], false, "{state}");
    assert!(kept.err.contains(name.as_str().unwrap().trim_start_matches('/')), "{}", kept.err);
    assert!(rig.records().is_empty());
    let next = Rig::on(Docker, &script(&[], "next"));
    let mut command = next.command(&["x"]);
    ran(command.env("XDG_STATE_HOME", &rig.state).output().unwrap()).code(0);
    assert!(exists(&box_of.1));
}

/// The box is removed from outside in the middle of a call: the run ends and says what happened.
#[test]
fn a_box_that_somebody_removes() {
    if !ready() {
        return;
    }
    let rig = Rig::on(Docker, &script(&["touch up; sleep 60"], "done"));
    let child = rig.start(&["x"]);
    let id = rig.record_with("container")["container"].clone();
    until("the tool call", || rig.work.join("up").exists().then_some(()));
    docker(&["rm", "-f", &id]);
    ran(child.wait_with_output().unwrap()).code(125).says("the container was removed");
    rig.assert_clean();
}

/// Two sealed runs, one torn down while the other is in the middle of a call: the other does not notice.
#[test]
fn two_runs_beside_each_other() {
    if !ready() {
        return;
    }
    let long = Rig::on(Docker, &script(&["touch up; sleep 4; echo hi > end"], "long is done"));
    let other = Rig::on(Docker, &script(&["touch up; sleep 60"], "done"));
    let (first, mut second) = (long.start(&["x"]), other.start(&["x"]));
    until("both runs", || (long.work.join("up").exists() && other.work.join("up").exists()).then_some(()));
    signal(second.id(), "TERM");
    assert_eq!(second.wait().unwrap().code(), Some(143));
    other.assert_clean();
    ran(first.wait_with_output().unwrap()).code(0);
    assert_eq!(std::fs::read_to_string(long.work.join("end")).unwrap().trim(), "hi");
    long.assert_clean();
}

/// TRAPS 2: an agent that ignores SIGTERM is gone when the time is up.
#[test]
fn trap_02_timeout_ends_an_agent_that_ignores_it() {
    if !ready() {
        return;
    }
    let rig = Rig::on(Docker, &script(&["trap '' TERM INT HUP; sleep 60; sleep 60"], "done"));
    rig.run(&["x", "--timeout", "2s"]).code(124).says("--timeout");
    rig.assert_clean();
}

/// The address of this host on docker's default network.
fn gateway() -> String {
    let format = "{{with index .IPAM.Config 0}}{{or .Gateway .Subnet}}{{end}}";
    let said = docker(&["network", "inspect", "--format", format, "bridge"]).trim().to_string();
    // Docker 20.10 tells only the subnet of its default network: the gateway is the first address of it.
    said.split_once(".0/").map_or(said.clone(), |(net, _)| format!("{net}.1"))
}

/// BOX B25: `key-safe`. A download works, the key is not there, another box is not reachable, and what is open is said.
#[test]
fn box_b25_key_safe_has_a_network_and_no_key() {
    if !ready() {
        return;
    }
    let server = std::net::TcpListener::bind((gateway(), 0)).unwrap();
    let port = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for conn in server.incoming() {
            use std::io::{Read, Write};
            let mut conn = conn.unwrap();
            let _ = conn.read(&mut [0; 4096]);
            let _ = conn.write_all(b"HTTP/1.0 200 OK\r\n\r\nDOWNLOADED");
        }
    });
    let flags = ["--runtime", "docker", "--image", IMAGE, "--mode", "key-safe"];
    let listens = Rig::with(
        &script(
            &["hostname -I > address; python3 -m http.server 8000 >/dev/null 2>&1 & sleep 6; kill %1; true"],
            "done",
        ),
        &flags,
    );
    let first = listens.start(&["x"]);
    let address = until("its address", || {
        std::fs::read_to_string(listens.work.join("address")).ok().filter(|a| a.ends_with('\n'))
    });
    let address = address.trim();
    assert!(address.contains('.'), "{address}");
    let tried = format!(
        "curl -s -m 5 http://{}:{port}/ > got; echo $? >> got; curl -s -m 2 http://{address}:8000/ > other; echo $? >> other; \
         env > env; cat /proc/*/environ >> env 2>/dev/null; touch /var/tmp/x && echo w > root",
        gateway()
    );
    let rig = Rig::with(&script(&[&tried], "done"), &flags);
    rig.run(&["x"]).code(0).says("key-safe: the key stays outside").says("metadata addresses");
    let read =
        |name: &str| String::from_utf8_lossy(&std::fs::read(rig.work.join(name)).unwrap()).into_owned();
    assert_eq!(read("got"), "DOWNLOADED0\n");
    assert_eq!(read("other"), "28\n", "another box answered, or refused");
    assert!(!read("env").contains(KEY));
    assert!(rig.work.join("root").exists(), "the root is writable");
    let receipt = rig.receipt();
    assert_eq!((&receipt["mode"], &receipt["policy"]["sealed"]), (&Value::from("key-safe"), &false.into()));
    assert_eq!(receipt["usage"]["calls"], 2);
    ran(first.wait_with_output().unwrap()).code(0);
    rig.assert_clean();
    listens.assert_clean();
}

/// `open`: the agent has the key and no relay; one line says so; the engine's own account still holds no key.
#[test]
fn trap_47_open_mode_applies_the_upstream_and_says_what_it_lacks() {
    if !ready() {
        return;
    }
    let flags = ["--runtime", "docker", "--image", IMAGE, "--mode", "open", "--insecure-upstream"];
    let mut rig = Rig::at(&gateway(), &script(&["cat /proc/$PPID/environ > env; sleep 2"], "done"), &flags);
    assert!(rig.address.starts_with(&gateway()));
    let child = rig.start(&["x"]);
    let known = inspect(&rig.record_with("container")["container"]);
    let done = ran(child.wait_with_output().unwrap()).code(0);
    assert!(done.err.contains("open: the provider key is in the box"), "{}", done.err);
    assert!(done.err.contains("no call was counted"), "{}", done.err);
    assert_eq!(rig.bodies().len(), 2);
    assert!(String::from_utf8_lossy(&std::fs::read(rig.work.join("env")).unwrap()).contains(KEY));
    assert!(!known.to_string().contains(KEY));
    assert_eq!(rig.receipt()["usage"], Value::Null);
    rig.assert_clean();
    for (flag, value) in [
        ("--allow-model", "m-1"),
        ("--max-tokens-cap", "9"),
        ("--log-dir", "/tmp/x"),
        ("--skip-key-check", ""),
    ] {
        let args: Vec<&str> = ["x", flag, value].into_iter().filter(|w| !w.is_empty()).collect();
        rig.run(&args).code(2).says(flag).says("--mode open");
    }
    rig.address = "127.0.0.1:1".into();
    rig.run(&["x"]).code(2).says("the box itself");
    rig.engine.truncate(6);
    let mut command = rig.command(&["x"]);
    command.arg("--dry-run");
    let args: Vec<_> = command.get_args().map(|a| a.to_os_string()).collect();
    let https =
        args.iter().map(|a| if a == "http://127.0.0.1:1" { "https://api.test".into() } else { a.clone() });
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
    command.args(https).env("ANTHROPIC_API_KEY", KEY).env("XDG_STATE_HOME", &rig.state);
    ran(command.output().unwrap()).code(2).says("no TLS of its own").says("sealed or key-safe");
}

/// Flags of one mode in another, and modes that bwrap has not.
#[test]
fn flags_that_mean_nothing_are_refused() {
    let rig = Rig::with(&script(&[], "done"), &["--runtime", "docker", "--image", IMAGE]);
    rig.run(&["x", "--network", "n"]).code(2).says("--network with --mode sealed");
    rig.run(&["x", "--base-url", "http://a"]).code(2).says("--base-url with --mode sealed");
    let mut open = Rig::with(&script(&[], "done"), &["--runtime", "docker", "--mode", "open"]);
    open.address = "192.0.2.9:1".into();
    for name in ["host", "container:x"] {
        open.run(&["x", "--insecure-upstream", "--network", name])
            .code(2)
            .says(name)
            .says("no name of a network");
    }
    let bwrap = Rig::new(&script(&[], "done"));
    for mode in ["key-safe", "open"] {
        bwrap.run(&["x", "--mode", mode]).code(2).says("on bwrap");
    }
    for flag in [["--image", "x"], ["--cpus", "1"], ["--memory", "1g"]] {
        bwrap.run(&["x", flag[0], flag[1]]).code(2).says("on bwrap");
    }
    bwrap.run(&["x", "--keep"]).code(2).says("--keep on bwrap");
    bwrap.run(&["x", "--as-root"]).code(2).says("--as-root on bwrap");
}
