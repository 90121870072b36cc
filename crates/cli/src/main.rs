//! Entry point: run, map to an exit code.

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    lockgate_cli::args::main(std::env::args_os()).into()
}
