//! An answer of the API, read to its end.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use serde_json::Value;
use tokio::time::Instant;

/// What came back for one request.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body's exact bytes.
    pub body: Bytes,
    /// Time from sending to the last byte.
    pub took: Duration,
}

impl Reply {
    /// Sends a request and reads the whole answer.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn of(request: reqwest::RequestBuilder) -> Self {
        Self::try_of(request)
            .await
            .unwrap_or_else(|error| panic!("no answer: {error:?}"))
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When the connection failed before the answer was complete.
    pub async fn try_of(request: reqwest::RequestBuilder) -> Result<Self, reqwest::Error> {
        let start = Instant::now();
        let response = request.send().await?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = response.bytes().await?;
        Ok(Self {
            status,
            headers,
            body,
            took: start.elapsed(),
        })
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {:?}", self.status, self.text()))
    }

    /// A header's first value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The `id` of the job in the answer.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn id(&self) -> String {
        let id = self.json()["id"].as_str().map(str::to_owned);
        id.unwrap_or_else(|| panic!("no id in {} {}", self.status, self.text()))
    }

    /// The `code` of a problem document; empty where there is none.
    #[must_use]
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The pointers of the errors in a problem document.
    #[must_use]
    pub fn pointers(&self) -> Vec<String> {
        let document = self.json();
        let errors = document["errors"].as_array().into_iter().flatten();
        errors
            .filter_map(|error| error["pointer"].as_str().map(str::to_owned))
            .collect()
    }
}
