//! Signing secrets and sealed values, as rows; what is inside is known to nobody here.

use chrono::{DateTime, Utc};

use crate::queue::Queue;

/// What a signed attempt, or a person, may see of a secret.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct SecretRow {
    /// Its name.
    pub name: String,
    /// `hmac` or `ed25519`.
    pub kind: String,
    /// The value, sealed for the context [`secret_context`] of its name.
    pub sealed: Vec<u8>,
    /// The last four characters.
    pub last_four: String,
    /// When it was stored.
    pub created_at: DateTime<Utc>,
}

/// What a secret is sealed for, so that one cannot be put in the place of another.
#[must_use]
pub fn secret_context(name: &str) -> String {
    format!("secret:{name}")
}

/// What header values are sealed for.
pub const HEADERS_CONTEXT: &str = "headers";

impl Queue {
    /// Returns the secrets of these names that there are, in no order.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the secrets.
    pub async fn secrets(&self, names: &[String]) -> sqlx::Result<Vec<SecretRow>> {
        sqlx::query_as(
            "-- secrets
            SELECT name, kind, sealed, last_four, created_at FROM hook.secret WHERE name = ANY ($1)",
        )
        .bind(names)
        .fetch_all(&self.pool())
        .await
    }

    /// Stores a secret, in the place of one of the same name.
    ///
    /// # Errors
    /// Whether it was stored is not known; storing it again is harmless.
    pub async fn put_secret(
        &self,
        name: &str,
        kind: &str,
        sealed: &[u8],
        last_four: &str,
    ) -> sqlx::Result<()> {
        sqlx::query(
            "-- put_secret
            INSERT INTO hook.secret (name, kind, sealed, last_four) VALUES ($1, $2, $3, $4)
            ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, sealed = excluded.sealed,
                last_four = excluded.last_four, created_at = now()",
        )
        .bind(name)
        .bind(kind)
        .bind(sealed)
        .bind(last_four)
        .execute(&self.pool())
        .await?;
        Ok(())
    }

    /// Deletes a secret; false if there was none.
    ///
    /// # Errors
    /// Whether it was deleted is not known; calling again is harmless.
    pub async fn delete_secret(&self, name: &str) -> sqlx::Result<bool> {
        let deleted = sqlx::query(
            "-- delete_secret
            DELETE FROM hook.secret WHERE name = $1",
        )
        .bind(name)
        .execute(&self.pool())
        .await?;
        Ok(deleted.rows_affected() > 0)
    }
}
