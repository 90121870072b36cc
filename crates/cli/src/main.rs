//! Entry point: parse, run, map to an exit code.

use clap::Parser as _;
use lockgate_cli::args::{Cli, run};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    run(&Cli::parse()).into()
}
