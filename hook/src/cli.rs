//! The command line: what can be typed, and where it leads.

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use hook_bench::command::BenchArgs;

use crate::{
    bench, config, dev, doctor, enqueue,
    exit::Failure,
    health, jobs, migrate,
    output::{Format, Output},
    queues, receiver, replays, secrets, tail, targets,
};

/// Exit codes, as `--help` shows them.
const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 a fault, 2 bad usage or settings, 3 the API refused, 4 not available now.
Settings come from the environment (DATABASE_URL, HOOK_API_URL, HOOK_API_TOKEN, …) or from flags;
a flag wins. Durations are written 250ms, 5s, 10m, 24h, 7d.";

/// Run, feed and look after a webhook delivery queue.
#[derive(Debug, Parser)]
#[command(name = "hook", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    /// Print JSON for programs instead of text for people.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything on this machine: Postgres, API, worker, janitor and a receiver to send to.
    Dev(dev::DevArgs),
    /// Bring the database to the schema that this version needs.
    ///
    /// Safe to run from several machines at one time, and while services are running.
    Migrate(migrate::MigrateArgs),
    /// Enqueue one job, or many from a file or from stdin, through the API.
    Enqueue(Box<enqueue::EnqueueArgs>),
    /// Look at jobs, stop them, put them back.
    Jobs(jobs::JobsArgs),
    /// Look at replays that were asked for with `hook jobs replay`, and stop them.
    Replays(replays::ReplaysArgs),
    /// Look at destinations, hold them back, set their limits.
    Targets(targets::TargetsArgs),
    /// Show how many jobs are where.
    Queues(queues::QueuesArgs),
    /// Store signing secrets, look at them, delete them.
    Secrets(secrets::SecretsArgs),
    /// Show attempts as they are made, those of the newest jobs.
    Tail(tail::TailArgs),
    /// Judge the settings of this environment without starting anything.
    Config(config::ConfigArgs),
    /// Look at settings and database, and say what is wrong and what to do about it.
    Doctor(doctor::DoctorArgs),
    /// Ask a service whether it is ready; for health checks of containers.
    Health(health::HealthArgs),
    /// Measure what this version can do on this machine; runs for minutes and uses all of it.
    Bench(BenchArgs),
    /// Receive what is sent, show it and answer as the path says; for trying things out.
    Receiver(receiver::ReceiverArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

impl Cli {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let output = Output::new(if self.json {
            Format::Json
        } else {
            Format::Text
        });
        match self.command {
            Command::Dev(args) => dev::run(args, output),
            Command::Migrate(args) => migrate::run(args, output),
            Command::Enqueue(args) => enqueue::run(*args, output),
            Command::Jobs(args) => jobs::run(args, output),
            Command::Replays(args) => replays::run(args, output),
            Command::Targets(args) => targets::run(args, output),
            Command::Queues(args) => queues::run(args, output),
            Command::Secrets(args) => secrets::run(args, output),
            Command::Tail(args) => tail::run(&args, output),
            Command::Config(args) => config::run(args, output),
            Command::Doctor(args) => doctor::run(&args, output),
            Command::Health(args) => health::run(args, output),
            Command::Bench(args) => bench::run(args, output),
            Command::Receiver(args) => receiver::run(args, output),
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "hook", &mut script);
                output.bytes(&script)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
