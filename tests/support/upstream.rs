//! Scripted model provider for tests and `make demo`.

fn main() {}
