//! Values that are never shown.

use std::fmt;

use zeroize::Zeroize;

/// Hides a value from `Debug` and `Display`, and wipes it when it is dropped.
#[derive(Clone, Default)]
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Hides a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself; for use, never for show.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T: Zeroize> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The text of a URL with its password, in whichever place, replaced by `***`.
///
/// What is no URL is hidden as a whole: who knows where its password is.
#[must_use]
pub fn mask_url(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else {
        return "***".to_owned();
    };
    // An `@` behind the host belongs to a password with a `/`, `?` or `#` that was not escaped.
    let rest = [Some(url.path()), url.query(), url.fragment()];
    let misread = rest.iter().flatten().any(|part| part.contains('@'));
    if misread || url.cannot_be_a_base() {
        return "***".to_owned();
    }
    if url.password().is_some() && url.set_password(Some("***")).is_err() {
        return "***".to_owned();
    }
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    if !pairs.is_empty() {
        url.query_pairs_mut()
            .clear()
            .extend_pairs(pairs.iter().map(|(name, value)| {
                let shown = if name == "sslmode" { value } else { "***" };
                (name, shown)
            }));
    }
    url.into()
}
