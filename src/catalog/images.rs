//! Images as data: `resources/images/NAME.Containerfile`, compiled in, one per shipped agent, and what their tags are. Builds nothing:
//! `run/image` does.

/// Every shipped Containerfile, by agent.
const SHIPPED: [(&str, &str); 2] = [
    ("claude", include_str!("../../resources/images/claude.Containerfile")),
    ("mini", include_str!("../../resources/images/mini.Containerfile")),
];

/// What an image starts from where nothing else is said.
pub const BASE: &str = "debian:bookworm-slim";
/// What `make image-base` makes of Debian's packages on a host that reaches no registry.
pub const LOCAL_BASE: &str = "sanduk-base:bookworm";
/// The one file besides the Containerfile that a build can copy: certificates the host trusts, for steps that download.
pub const HOST_CA: &str = "host-ca.crt";
/// The label of a stage that only fetches; its value is one build's own.
pub const STAGE_LABEL: &str = "sanduk.stage";
/// How all tags of ours begin.
const OURS: &str = "sanduk-";
/// Longest image reference (Docker's own limit for the name part is 255).
const REFERENCE_BYTES: usize = 255;

/// The Containerfile of a shipped agent.
pub fn shipped(agent: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(name, _)| *name == agent).map(|(_, text)| *text)
}

/// Agents that have one, sorted.
pub fn names() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

/// The tag of an agent's image: a new version of this program builds its own.
pub fn tag(agent: &str) -> String {
    format!("{OURS}{agent}:{}", env!("CARGO_PKG_VERSION"))
}

/// A word that an engine can only take for an image. `Err`: why it is none, as a clause.
pub fn reference(text: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/:@".contains(&b);
    if text.is_empty() || text.len() > REFERENCE_BYTES {
        return Err(format!("an image is named by 1 to {REFERENCE_BYTES} characters"));
    }
    match text.bytes().all(plain) && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) {
        true => Ok(()),
        false => Err("an image is named by letters, digits and ._-/:@, a letter or digit first".into()),
    }
}

/// A tag that the image of `agent` may get. `Err`: why not, as a clause.
pub fn may_tag(agent: &str, tag: &str) -> Result<(), String> {
    reference(tag)?;
    if tag.contains('@') {
        return Err("a digest is what an image is, not what it can be called".into());
    }
    let name = tag.split_once(':').map_or(tag, |(name, _)| name);
    match name.strip_prefix(OURS) {
        Some(other) if other != agent => Err(format!("{name} is not the name of an image of agent {agent}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TRAPS 107: one agent's image under another's tag.
    #[test]
    fn trap_107_an_agents_tag_is_its_own() {
        for good in ["sanduk-claude:9", "sanduk-claude", "mine", "mine:1", "host:5000/team/mine:1"] {
            assert_eq!(may_tag("claude", good), Ok(()), "{good}");
        }
        for bad in [
            "sanduk-mini:9",
            "sanduk-base:bookworm",
            "",
            "-t",
            "--file=x",
            "a b",
            "a\n",
            ":x",
            "/x",
            "a@sha256:0",
        ] {
            assert!(may_tag("claude", bad).is_err(), "{bad}");
        }
        assert!(reference("debian@sha256:0123").is_ok());
        assert!(reference(&"x".repeat(256)).is_err());
    }

    /// What the design asks of each Containerfile.
    #[test]
    fn containerfiles_are_plain() {
        for name in names() {
            let text = shipped(name).unwrap_or_default();
            let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.starts_with('#')).collect();
            let count = |start: &str| lines.iter().filter(|l| l.starts_with(start)).count();
            assert_eq!((count("ARG BASE"), count(&format!("ARG BASE={BASE}"))), (1, 1), "{name}");
            for start in ["ENTRYPOINT", "HEALTHCHECK", "VOLUME", "ADD", "USER", "EXPOSE", "ONBUILD"] {
                assert_eq!(count(start), 0, "{name} has {start}");
            }
            for host in ["://", ".com", ".org", ".io", ".net", "localhost", "latest", "sanduk.run"] {
                assert!(!lines.iter().any(|l| l.contains(host)), "{name} names {host}");
            }
            for tool in ["git:git", "rg:ripgrep", "curl:curl", "jq:jq", "python3:python3", "ca-certificates"]
            {
                assert!(text.contains(tool), "{name} lacks {tool}");
            }
            // The certificates of the host are in no layer of the image: the last stage copies from the first one, by name.
            let last = lines.iter().rposition(|l| l.starts_with("FROM ")).unwrap_or_default();
            for line in lines.iter().skip(last).filter(|l| l.starts_with("COPY")) {
                assert!(line.starts_with("COPY --from=fetch ") && !line.contains(HOST_CA), "{name}: {line}");
            }
            // TRAPS 103: what is downloaded has a version and a checksum.
            for line in lines.iter().filter(|l| l.contains("npm pack")) {
                assert!(line.contains("@$version") && text.contains("sha256sum -c"), "{name}: {line}");
            }
            assert_eq!(tag(name), format!("sanduk-{name}:{}", env!("CARGO_PKG_VERSION")));
        }
    }
}
