//! The `poolkeeper` program: parses the command line and hands over to the library.

use std::process::ExitCode;

/// A thousand keepers allocate and free a little each second: glibc's allocator needed half as much memory again for it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    poolkeeper::cli::main()
}
