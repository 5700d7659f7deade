//! Files: nothing followed, nothing half-written, modes and locks.

use super::*;

#[test]
fn trap_27_reads_follow_nothing_and_block_on_nothing() {
    let dir = Scratch::new();
    let d = dir.open();
    std::fs::write(dir.0.join("secret"), b"host").unwrap();
    symlink(dir.0.join("secret"), dir.0.join("REPORT.md")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.0.join("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
    std::fs::create_dir(dir.0.join("dir")).unwrap();
    let _socket = net::listen_unix(&dir.0, "socket", 0o600).unwrap();
    for name in ["REPORT.md", "fifo", "dir", "socket"] {
        assert!(d.read(name, 100).is_err(), "{name}");
        assert!(d.append(name).is_err(), "{name}");
    }
    assert_eq!(std::fs::read(dir.0.join("secret")).unwrap(), b"host");
    assert!(d.below("REPORT.md").is_err());
    assert_eq!(d.read("secret", 4).unwrap(), b"host");
    assert_eq!(d.read("secret", 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
    for name in ["", ".", "..", "dir/x", "/etc/passwd", "../x", "x\0"] {
        assert_eq!(d.read(name, 100).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
        assert!(
            d.remove(name).is_err() && d.remove_tree(name).is_err() && d.write_new(name, b"", 0o600).is_err()
        );
    }
    // A device of any size stays bounded.
    assert!(file::read_named(Path::new("/dev/zero"), 1000).is_err());
    assert_eq!(file::read_named(&dir.0.join("REPORT.md"), 4).unwrap(), b"host");
}

/// TRAPS 28: a dangling link is something that is there.
#[test]
fn trap_28_dangling_links_are_seen_and_replaced() {
    let dir = Scratch::new();
    let d = dir.open();
    symlink("/no/such/target", dir.0.join("REPORT.md")).unwrap();
    assert_eq!(d.facts("REPORT.md").unwrap().mode & 0o170_000, 0o120_000);
    assert!(d.write_new("REPORT.md", b"x", 0o600).is_err());
    d.replace("REPORT.md", b"new", 0o644).unwrap();
    let facts = d.facts("REPORT.md").unwrap();
    assert_eq!((facts.mode, facts.size, facts.links), (0o100_644, 3, 1));
    assert_eq!(d.names().unwrap(), ["REPORT.md"]);
}

#[test]
fn writes_are_whole_private_and_leave_nothing() {
    let dir = Scratch::new();
    let d = dir.open();
    d.write_new("record", b"one", 0o600).unwrap();
    assert_eq!(d.write_new("record", b"two", 0o600).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(d.read("record", 10).unwrap(), b"one");
    d.replace("record", b"three", 0o600).unwrap();
    assert_eq!(d.read("record", 10).unwrap(), b"three");
    // The target is a directory: the rename fails, and the temporary file is gone.
    d.make("sub", 0o700).unwrap();
    assert!(d.replace("sub", b"x", 0o600).is_err());
    assert_eq!(d.names().unwrap(), ["record", "sub"]);
    d.write_new("other", b"o", 0o600).unwrap();
    assert_eq!(d.rename_new("other", "record").unwrap_err().kind(), ErrorKind::AlreadyExists);
    d.rename_new("other", "third").unwrap();
    d.remove("third").unwrap();
    d.remove("third").unwrap();
    let log = d.append("log").unwrap();
    rustix::io::write(&log, b"a").unwrap();
    rustix::io::write(d.append("log").unwrap(), b"b").unwrap();
    assert_eq!(d.read("log", 10).unwrap(), b"ab");
    assert_eq!(d.facts("log").unwrap().mode, 0o100_600);
    // A whole directory appears at once, made under another name.
    let hidden = d.make(".new", 0o700).unwrap();
    hidden.write_new("record", b"r", 0o600).unwrap();
    d.rename_new(".new", "run").unwrap();
    assert!(d.make("run", 0o700).is_err());
    assert_eq!(d.below("run").unwrap().read("record", 10).unwrap(), b"r");
}

#[test]
fn modes_are_exact_whatever_the_umask() {
    let dir = Scratch::new();
    let d = dir.open();
    d.make("box", 0o1777).unwrap();
    assert_eq!(d.facts("box").unwrap().mode, 0o041_777);
    d.write_new("public", b"", 0o666).unwrap();
    assert_eq!(d.facts("public").unwrap().mode, 0o100_666);
    std::fs::create_dir(dir.0.join("old")).unwrap();
    std::fs::set_permissions(dir.0.join("old"), PermissionsExt::from_mode(0o755)).unwrap();
    Dir::make_all(&dir.0.join("old/a/b"), 0o700).unwrap().write_new("f", b"", 0o600).unwrap();
    let mode = |p: &str| file::facts(&dir.0.join(p)).unwrap().mode & 0o7777;
    assert_eq!((mode("old"), mode("old/a"), mode("old/a/b")), (0o755, 0o700, 0o700));
    Dir::make_all(&dir.0.join("old/a/b"), 0o755).unwrap();
    assert_eq!(mode("old/a/b"), 0o700);
    // A component that is a file is an error, and so is a link at the end.
    assert!(Dir::make_all(&dir.0.join("old/a/b/f/c"), 0o700).is_err());
    symlink("/tmp", dir.0.join("link")).unwrap();
    assert!(Dir::make_all(&dir.0.join("link"), 0o700).is_err() && Dir::open(&dir.0.join("link")).is_err());
    if is_root() {
        d.give("box", 64_200, 64_201).unwrap();
        d.give("link", 64_200, 64_201).unwrap();
        let facts = d.facts("box").unwrap();
        assert_eq!((facts.uid, facts.gid), (64_200, 64_201));
        assert_eq!(file::facts(Path::new("/tmp")).unwrap().uid, 0);
        assert!(d.give("box", u32::MAX, 0).is_err());
    }
    assert_eq!(file::real_path(&dir.0.join("link/.")).unwrap(), Path::new("/tmp"));
}

/// BOX B29: a lock ends with its holder, though a child of it lives on.
#[test]
fn box_b29_a_lock_is_not_inherited() {
    let dir = Scratch::new();
    let d = dir.open();
    assert_eq!(d.lock("record").err().unwrap().kind(), ErrorKind::NotFound);
    d.write_new("record", b"", 0o600).unwrap();
    let held = d.lock("record").unwrap().unwrap();
    assert!(d.lock("record").unwrap().is_none());
    let child = exec::start(order("/bin/sleep", &["600"])).unwrap();
    drop(held);
    let again = d.lock("record").unwrap();
    assert!(again.is_some());
    // A rename keeps it; a directory can be locked as well.
    d.rename_new("record", "renamed").unwrap();
    assert!(d.lock("renamed").unwrap().is_none());
    d.make("run", 0o700).unwrap();
    let run = d.lock("run").unwrap();
    assert!(run.is_some() && d.lock("run").unwrap().is_none());
    drop(child);
}
