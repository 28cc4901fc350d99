//! Whole-system tests: real binaries, a real Postgres, raw sockets.

#![expect(
    clippy::print_stdout,
    reason = "seeds and figures are part of a test's report"
)]
#![expect(
    clippy::too_many_lines,
    reason = "a case is told from its beginning to its end, in one place"
)]

mod accounts;
mod any_answer;
mod backlogs;
mod bad_requests;
mod broken;
mod bytes;
mod canary;
mod clocks;
mod conflicts;
mod containers;
mod crowded;
mod dashboards;
mod described;
mod destinations;
mod examples;
mod failovers;
mod faults;
mod floods;
mod full_disks;
mod hang_ups;
mod holds;
mod kills;
mod kit;
mod limits;
mod names;
mod observed;
mod orphans;
mod overloads;
mod page;
mod poison;
mod poolers;
mod replays;
mod restarts;
mod retries;
mod rows;
mod secrecy;
mod settings;
mod statuses;
mod tidy;
mod tls;
mod upgrades;
