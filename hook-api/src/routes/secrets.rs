//! Signing secrets: written, replaced and deleted, never read back.

use axum::extract::{Path, Request, State, rejection::PathRejection};
use hook_common::{
    problem::{Code, Problem},
    queue::{SecretRow, secret_context},
    seal::Sealer,
    secret_value::SecretValue,
};
use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use tracing::error;

use super::{Answer, Shared, empty, json_of, segment};
use crate::{
    admission::{Access, Content},
    app::App,
    audit::Action,
    fields::Fields,
    problem::{Changes, Refusal},
    view::time,
};

/// Longest name, in characters.
const NAME_CHARS_MAX: usize = 255;

type NamePath = Result<Path<String>, PathRejection>;

#[derive(Serialize)]
struct SecretJson {
    name: String,
    kind: String,
    created_at: String,
    last_four: String,
}

/// `PUT /v1/secrets/{name}`
pub(super) async fn put(State(app): Shared, path: NamePath, request: Request) -> Answer {
    let admission = &app.admission;
    let admitted = admission
        .with_body(request, Access::Manage, Content::Json)
        .await?;
    let name = name_of(path)?;
    let mut fields = Fields::of(&admitted.body)?;
    let text = fields.required_text("secret");
    fields.finish()?;
    let secret = SecretValue::parse(&text.unwrap_or_default())
        .map_err(|fault| Problem::new(fault.code(), "/secret", fault.to_string()))?;
    let sealed = seal(app.sealer.as_ref(), &name, &secret)?;
    let kind = secret.kind().as_str();
    let detail = json!({"kind": kind});
    app.record(&admitted.parts, Action::PutSecret, &name, &detail)
        .await?;
    let putting = app
        .queue
        .put_secret(&name, kind, &sealed, secret.last_four());
    app.ask(Changes::Something, putting).await?;
    show(&app, name).await
}

/// `GET /v1/secrets/{name}`
pub(super) async fn get(State(app): Shared, path: NamePath, request: Request) -> Answer {
    let _admitted = app.admission.without_body(request, Access::Manage)?;
    show(&app, name_of(path)?).await
}

/// `DELETE /v1/secrets/{name}`
pub(super) async fn delete(State(app): Shared, path: NamePath, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    let name = name_of(path)?;
    app.record(&admitted.parts, Action::DeleteSecret, &name, &json!({}))
        .await?;
    let deleted = app
        .ask(Changes::Something, app.queue.delete_secret(&name))
        .await?;
    app.known_secrets.forget(&name);
    if deleted {
        Ok(empty(StatusCode::NO_CONTENT))
    } else {
        Err(no_such_secret())
    }
}

fn seal(sealer: Option<&Sealer>, name: &str, secret: &SecretValue) -> Result<Vec<u8>, Refusal> {
    let Some(sealer) = sealer else {
        let detail = "this service has no HOOK_SECRET_KEY to keep secrets with";
        return Err(Problem::new(Code::SecretInvalid, "/secret", detail).into());
    };
    sealer
        .seal(secret.expose().as_bytes(), &secret_context(name))
        .map_err(|error| {
            error!(%error, "a secret cannot be sealed");
            Refusal::internal()
        })
}

async fn show(app: &App, name: String) -> Answer {
    let names = [name];
    let found = app.ask(Changes::Nothing, app.queue.secrets(&names)).await?;
    let secret = found.into_iter().next().ok_or_else(no_such_secret)?;
    Ok(json_of(StatusCode::OK, &SecretJson::new(secret)))
}

impl SecretJson {
    fn new(secret: SecretRow) -> Self {
        Self {
            name: secret.name,
            kind: secret.kind,
            created_at: time(secret.created_at),
            last_four: secret.last_four,
        }
    }
}

/// A name of 1 to 255 printable characters, as jobs may give it.
fn name_of(path: NamePath) -> Result<String, Refusal> {
    let name = segment(path)?;
    let is_name = !name.is_empty()
        && name.chars().count() <= NAME_CHARS_MAX
        && !name.chars().any(char::is_control);
    is_name.then_some(name).ok_or_else(no_such_secret)
}

fn no_such_secret() -> Refusal {
    Refusal::not_found("there is no such secret")
}
