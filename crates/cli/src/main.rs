//! Entry point: parse, run, map to an exit code.

use clap::Parser as _;
use lockgate_cli::args::Cli;
use lockgate_cli::commands;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    commands::run(&Cli::parse()).into()
}
