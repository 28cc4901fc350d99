//! Who decides what the sink answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::sink::answer::{Answer, End};
use crate::sink::record::Request;

/// Decides the answer to each request, once its head is read.
#[derive(Clone)]
pub struct Script(Arc<Decide>);

type Decide = dyn Fn(&Request, u32) -> Answer + Send + Sync;

impl Script {
    /// Asks a closure, with the number of requests seen so far with the same `webhook-id`
    /// (this one included, so from 1).
    pub fn new(decide: impl Fn(&Request, u32) -> Answer + Send + Sync + 'static) -> Self {
        Self(Arc::new(decide))
    }

    /// Gives every request this answer.
    #[must_use]
    pub fn always(answer: Answer) -> Self {
        Self::new(move |_, _| answer.clone())
    }

    /// Gives every request this status.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::always(Answer::status(status))
    }

    /// Gives the requests of each job these answers in turn; the last one repeats.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn sequence(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers: Vec<Answer> = answers.into_iter().collect();
        assert!(!answers.is_empty(), "a sequence needs an answer");
        Self::new(move |_, nth| {
            let place = (nth as usize - 1).min(answers.len() - 1);
            answers[place].clone()
        })
    }

    /// Gives the requests of each job these statuses in turn; the last one repeats.
    pub fn statuses(statuses: impl IntoIterator<Item = u16>) -> Self {
        Self::sequence(statuses.into_iter().map(Answer::status))
    }

    /// Asks the script of the first listed path that begins the request's; 404 without one.
    pub fn by_path<P: Into<String>>(routes: impl IntoIterator<Item = (P, Self)>) -> Self {
        let routes: Vec<(String, Self)> = routes
            .into_iter()
            .map(|(path, script)| (path.into(), script))
            .collect();
        Self::new(move |request, _| {
            routes
                .iter()
                .find(|(path, _)| request.path.starts_with(path.as_str()))
                .map_or_else(|| Answer::status(404), |(_, script)| script.decide(request))
        })
    }

    /// Answers with the status that the path names: `/503/anything` answers 503.
    #[must_use]
    pub fn status_in_path() -> Self {
        Self::new(|request, _| {
            let status = request
                .path
                .split('/')
                .nth(1)
                .and_then(|text| text.parse().ok());
            Answer::status(status.unwrap_or(404))
        })
    }

    pub(super) fn decide(&self, request: &Request) -> Answer {
        (self.0)(request, request.nth)
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

impl From<Answer> for Script {
    fn from(answer: Answer) -> Self {
        Self::always(answer)
    }
}

impl From<u16> for Script {
    fn from(status: u16) -> Self {
        Self::status(status)
    }
}

/// What happens to a connection before its first byte is read.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Time between accepting and anything else.
    pub pause: Duration,
    /// What follows.
    pub act: OpeningAct,
}

/// What the sink does with a fresh connection.
#[derive(Clone, Debug)]
pub enum OpeningAct {
    /// Serves it by the script.
    Serve,
    /// Writes these bytes (a banner), then ends it.
    Say(Bytes, End),
    /// Ends it at once.
    Finish(End),
}

impl Opening {
    /// Serves at once.
    #[must_use]
    pub fn serve() -> Self {
        Self::act(OpeningAct::Serve)
    }

    /// Does this at once.
    #[must_use]
    pub fn act(act: OpeningAct) -> Self {
        Self {
            pause: Duration::ZERO,
            act,
        }
    }

    /// Does the same after a pause.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }
}

/// Decides the opening of each connection by its number, from 1.
#[derive(Clone)]
pub(super) struct Openings(pub(super) Arc<dyn Fn(usize) -> Opening + Send + Sync>);

impl fmt::Debug for Openings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Openings")
    }
}
