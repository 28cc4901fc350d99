//! The table of every setting of every program.

use super::{Binary, Section};

mod aftermath;
mod api;
mod ground;
mod worker;

const EVERYONE: &[Binary] = &[Binary::Api, Binary::Worker, Binary::Janitor, Binary::Hook];
const SERVICES: &[Binary] = &[Binary::Api, Binary::Worker, Binary::Janitor];
const API: &[Binary] = &[Binary::Api];
const WORKER: &[Binary] = &[Binary::Worker];
const JANITOR: &[Binary] = &[Binary::Janitor];
const HOOK: &[Binary] = &[Binary::Hook];
const API_WORKER: &[Binary] = &[Binary::Api, Binary::Worker];
const API_JANITOR: &[Binary] = &[Binary::Api, Binary::Janitor];

const OPS_LISTEN: &[(Binary, &str)] = &[
    (Binary::Api, "127.0.0.1:3310"),
    (Binary::Worker, "127.0.0.1:3311"),
    (Binary::Janitor, "127.0.0.1:3312"),
];

/// Every setting, by part of the product.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "Postgres",
        settings: ground::POSTGRES,
    },
    Section {
        title: "Every service",
        settings: ground::SERVICE,
    },
    Section {
        title: "hook-api",
        settings: api::API_ONLY,
    },
    Section {
        title: "hook-worker: taking jobs",
        settings: worker::DEQUEUE,
    },
    Section {
        title: "hook-worker: sending",
        settings: worker::SENDING,
    },
    Section {
        title: "hook-worker: retries and penalties",
        settings: aftermath::RETRIES,
    },
    Section {
        title: "hook-janitor",
        settings: aftermath::JANITOR_ONLY,
    },
    Section {
        title: "hook",
        settings: api::COMMANDS,
    },
];
