//! Settings of the commands: the environment, with flags over it.

use hook_common::config::{Binary, Reader, Secret, command_line::Vars};

use crate::exit::Failure;

/// Names and texts from the environment, with what was typed over them.
pub(crate) fn vars<'a>(flags: impl IntoIterator<Item = (&'static str, Option<&'a str>)>) -> Vars {
    let mut vars = Vars::from_environment();
    for (name, text) in flags {
        if let Some(text) = text {
            vars.set(name, text);
        }
    }
    vars
}

/// Where the database is, past any pooler.
pub(crate) fn direct_database_url(vars: &Vars) -> Result<Secret<String>, Failure> {
    let mut reader = Reader::new(Binary::Hook, |name| vars.get(name));
    let direct = reader.postgres_url("HOOK_DATABASE_DIRECT_URL");
    let url = direct.or_else(|| reader.postgres_url("DATABASE_URL"));
    reader.finish()?;
    Ok(url.expect("a required setting is there, or reading it is an error"))
}
