//! Every number that a peer or a file can hit, with its reason. `audit/limits.txt` is compared with this file.

use std::time::Duration;

/// Longest request or status line: real targets are under 200 bytes, 8 KiB is what other servers allow.
pub const LINE_BYTES: usize = 8 * 1024;
/// Longest single header field; Claude Code's longest beta list is under 1 KiB.
pub const FIELD_BYTES: usize = 16 * 1024;
/// Whole head, so that one connection's buffer is bounded.
pub const HEAD_BYTES: usize = 64 * 1024;
/// Header fields in one head; real agents send under 40.
pub const FIELDS: usize = 128;
/// Trailer section of a chunked body; read and dropped.
pub const TRAILER_BYTES: usize = 8 * 1024;
/// Hex digits of a chunk size: sixteen hold any u64.
pub const CHUNK_DIGITS: usize = 16;
/// Bytes of one chunk extension; none are known to be sent.
pub const CHUNK_EXT_BYTES: usize = 1024;
/// Request body: the largest recorded agent request is 2 MiB; images need more.
pub const BODY_BYTES: usize = 64 * 1024 * 1024;
/// JSON nesting; real requests stay under 30.
pub const JSON_DEPTH: usize = 128;
/// Member names of all open objects together, kept to find duplicates; a large recorded request has under 100 at a time.
pub const JSON_NAMES: usize = 1_000_000;
/// Connections one relay serves at a time; an agent uses under 10.
pub const CONNECTIONS: usize = 128;
/// Time for a whole request head once its first byte came, and for the first byte of a new connection.
pub const HEAD_TIME: Duration = Duration::from_secs(10);
/// A kept-alive client connection with no request.
pub const KEEPALIVE_TIME: Duration = Duration::from_secs(120);
/// No byte from the provider for so long ends the call; thinking models stay silent for minutes.
pub const UPSTREAM_IDLE: Duration = Duration::from_secs(600);
/// No byte taken by the client for so long ends the call.
pub const CLIENT_STALL: Duration = Duration::from_secs(120);
/// TCP connect, and the whole TLS handshake.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);
/// A pooled upstream connection older than this is not reused.
pub const POOL_IDLE: Duration = Duration::from_secs(30);
/// Copy buffer of a connection, one each way.
pub const COPY_BYTES: usize = 64 * 1024;
/// Bytes of a provider key.
pub const KEY_BYTES: usize = 8 * 1024;
/// Bytes of an openssl child's standard error that are read for its verdict; a handshake prints under 1 KiB.
pub const TLS_WORDS: usize = 64 * 1024;
/// After a TLS stream's end the child has so long to say, by its exit code, whether the end was clean (it needs 1 ms).
pub const TLS_END_TIME: Duration = Duration::from_secs(2);
/// A retired openssl child gets so long to close its connection before it is killed (an idle one needs 1 ms).
pub const TLS_RETIRE_TIME: Duration = Duration::from_secs(1);
/// Pipe buffers to and from openssl; measured to pay against the default of 64 KiB on streams of many megabytes.
pub const TLS_PIPE_BYTES: usize = 256 * 1024;
/// A database lock held by another process is waited for so long; our transactions last milliseconds.
pub const DB_BUSY_TIME: Duration = Duration::from_secs(10);
