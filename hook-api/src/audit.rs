//! Who asked for which change: recorded before the change is made, so that none is without it.
//!
//! An entry therefore says what was asked for; a change that its state then ruled out has one,
//! too. Tokens have no names, so an entry has the beginning of the token's digest.

use std::net::SocketAddr;

use hook_common::queue::Change;
use http::request::Parts;
use serde_json::Value;

use crate::{
    app::App,
    auth,
    problem::{Changes, Refusal},
};

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote(pub(crate) SocketAddr);

/// What can be changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Action {
    CancelJob,
    RetryJob,
    ReplayJobs,
    CancelReplay,
    PauseTarget,
    ResumeTarget,
    ProbeTarget,
    ChangeTarget,
    PutSecret,
    DeleteSecret,
}

impl Action {
    /// Every action, for the description.
    pub(crate) const ALL: &'static [Self] = &[
        Self::CancelJob,
        Self::RetryJob,
        Self::ReplayJobs,
        Self::CancelReplay,
        Self::PauseTarget,
        Self::ResumeTarget,
        Self::ProbeTarget,
        Self::ChangeTarget,
        Self::PutSecret,
        Self::DeleteSecret,
    ];

    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::CancelJob => "cancel_job",
            Self::RetryJob => "retry_job",
            Self::ReplayJobs => "replay_jobs",
            Self::CancelReplay => "cancel_replay",
            Self::PauseTarget => "pause_target",
            Self::ResumeTarget => "resume_target",
            Self::ProbeTarget => "probe_target",
            Self::ChangeTarget => "change_target",
            Self::PutSecret => "put_secret",
            Self::DeleteSecret => "delete_secret",
        }
    }
}

impl App {
    /// Records a change that a request asks for; it must not be made unless this succeeds.
    pub(crate) async fn record(
        &self,
        parts: &Parts,
        action: Action,
        subject: &str,
        detail: &Value,
    ) -> Result<(), Refusal> {
        let remote = parts.extensions.get::<Remote>();
        let remote = remote.map_or_else(String::new, |Remote(address)| address.to_string());
        let token = auth::fingerprint(&parts.headers);
        let change = Change {
            action: action.as_str(),
            subject,
            detail,
            token: token.as_deref(),
            remote: &remote,
        };
        self.ask(Changes::Something, self.queue.record(change))
            .await
    }
}
