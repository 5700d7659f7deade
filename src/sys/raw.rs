//! The only `unsafe` of the program: thin wrappers over system calls that rustix does not offer. Each block is one operation with
//! its reason; what the numbers mean is decided in `proc`, `confine`, `net` and `env`.
