//! A stored request, checked again and made ready for the wire.
//!
//! Rows may have been made by SQL, so nothing in them is trusted: the rules that the API applies
//! are applied once more, by the same code. What passes is put together here once, and each try
//! on a connection makes its own copy of the cheap parts.

use std::{borrow::Cow, net::IpAddr};

use bytes::Bytes;
use hook_common::{
    address::AllowNets,
    headers,
    job::Method,
    url_rules::{self, CheckedHost, CheckedUrl, Scheme},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    header::{CONTENT_LENGTH, HOST, USER_AGENT},
    uri::PathAndQuery,
};
use http_body_util::Full;
use url::{Position, Url};

use crate::{classify::TransportError, client::Cleartext, delivery::Request};

const USER_AGENT_DEFAULT: &str = concat!("hook/", env!("CARGO_PKG_VERSION"));

/// Where a request goes, before any name has been resolved.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Endpoint {
    /// Whether TLS is spoken.
    pub(crate) scheme: Scheme,
    /// The name in lower case without a trailing dot, or the address without brackets.
    pub(crate) host: String,
    /// The port to connect to.
    pub(crate) port: u16,
}

impl Endpoint {
    /// Host and port as one text, an IPv6 address in brackets.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// What a request is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'c> {
    /// The networks that are opened.
    pub(crate) allow_nets: &'c AllowNets,
    /// Whether `http` URLs may be sent to.
    pub(crate) cleartext: Cleartext,
}

/// Why a stored request will never be sent.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Either an invalid request or a blocked address.
    pub(crate) error: TransportError,
    /// The rule that it breaks.
    pub(crate) text: Cow<'static, str>,
}

/// A request that can be sent.
pub(crate) struct Outgoing {
    /// Where it goes.
    pub(crate) endpoint: Endpoint,
    /// The address, if the URL has one in the place of a name.
    pub(crate) literal: Option<IpAddr>,
    method: http::Method,
    url: Uri,
    path: Uri,
    headers: HeaderMap,
    body: Bytes,
}

/// How a connection wants to be told about the destination of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// HTTP/1.1 to the target: path and query, and a `host` header.
    Origin,
    /// HTTP/1.1 to a forward proxy: the whole URL, and a `host` header.
    Absolute,
    /// HTTP/2: the whole URL becomes pseudo headers, which replace `host`.
    Pseudo,
}

impl Outgoing {
    /// Checks a stored request.
    pub(crate) fn new(mut request: Request, rules: Rules<'_>) -> Result<Self, Refusal> {
        let checked = url_rules::check(&request.url)
            .map_err(|problem| invalid(format!("url: {}", problem.detail)))?;
        if let Some(problem) = url_rules::forbidden(&checked, rules.allow_nets) {
            return Err(blocked(&checked.host, problem.detail));
        }
        if checked.scheme == Scheme::Http && rules.cleartext == Cleartext::Refused {
            return Err(invalid("url: only https is allowed"));
        }
        let (url, path, authority) = parts_of_url(&checked)?;
        let fields = headers::check(
            std::mem::take(&mut request.headers),
            checked.basic.as_deref(),
        )
        .map_err(|problems| match problems.list().first() {
            Some(first) => invalid(format!("headers: {}", first.detail)),
            None => invalid("headers"),
        })?;
        let headers = header_map(&request, fields, authority)?;
        let (host, literal) = match checked.host {
            CheckedHost::Name(name) => (name, None),
            CheckedHost::Address(address) => (address.to_string(), Some(address)),
        };
        Ok(Self {
            endpoint: Endpoint {
                scheme: checked.scheme,
                host,
                port: checked.port,
            },
            literal,
            method: http_method(request.method),
            url,
            path,
            headers,
            body: request.body,
        })
    }

    /// The host, which is all of the URL that may be shown.
    pub(crate) fn host(&self) -> &str {
        &self.endpoint.host
    }

    /// Makes the request once more; the body's bytes are shared.
    pub(crate) fn to_http(&self, form: Form) -> http::Request<Full<Bytes>> {
        let mut request = http::Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.headers_mut() = self.headers.clone();
        *request.uri_mut() = match form {
            Form::Origin => self.path.clone(),
            Form::Absolute | Form::Pseudo => self.url.clone(),
        };
        if form == Form::Pseudo {
            request.headers_mut().remove(HOST);
        }
        request
    }
}

fn parts_of_url(checked: &CheckedUrl) -> Result<(Uri, Uri, HeaderValue), Refusal> {
    let no_uri = || invalid("url: cannot be written as a request target");
    let parsed = Url::parse(&checked.url).map_err(|_| no_uri())?;
    let path: PathAndQuery = parsed[Position::BeforePath..]
        .parse()
        .map_err(|_| no_uri())?;
    let authority = &parsed[Position::BeforeHost..Position::AfterPort];
    let host = HeaderValue::from_str(authority).map_err(|_| no_uri())?;
    let url = Uri::builder()
        .scheme(match checked.scheme {
            Scheme::Http => http::uri::Scheme::HTTP,
            Scheme::Https => http::uri::Scheme::HTTPS,
        })
        .authority(authority)
        .path_and_query(path.clone())
        .build()
        .map_err(|_| no_uri())?;
    Ok((url, Uri::from(path), host))
}

/// The caller's headers in their order, then ours. The framing headers come from us alone.
fn header_map(
    request: &Request,
    fields: Vec<(String, String)>,
    host: HeaderValue,
) -> Result<HeaderMap, Refusal> {
    let unsendable = |_| invalid("headers: cannot be put on the wire");
    let mut map = HeaderMap::with_capacity(fields.len() + 7);
    map.insert(HOST, host);
    for (name, value) in fields {
        let name: HeaderName = name
            .parse()
            .map_err(|_| invalid("headers: cannot be put on the wire"))?;
        map.append(name, HeaderValue::from_str(&value).map_err(unsendable)?);
    }
    map.entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(USER_AGENT_DEFAULT));
    map.insert(CONTENT_LENGTH, HeaderValue::from(request.body.len()));
    let id = HeaderValue::from_str(&request.job_id.to_string()).map_err(unsendable)?;
    map.insert(HeaderName::from_static("webhook-id"), id);
    map.insert(
        HeaderName::from_static("webhook-timestamp"),
        HeaderValue::from(request.timestamp),
    );
    map.insert(
        HeaderName::from_static("hook-attempt"),
        HeaderValue::from(request.attempt),
    );
    if let Some(signatures) = &request.signatures {
        let value = HeaderValue::from_str(signatures).map_err(unsendable)?;
        map.insert(HeaderName::from_static("webhook-signature"), value);
    }
    Ok(map)
}

fn http_method(method: Method) -> http::Method {
    match method {
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Patch => http::Method::PATCH,
        Method::Delete => http::Method::DELETE,
        Method::Get => http::Method::GET,
    }
}

/// A name is shown with the rule, an address is not.
fn blocked(host: &CheckedHost, rule: Cow<'static, str>) -> Refusal {
    Refusal {
        error: TransportError::BlockedAddress,
        text: match host {
            CheckedHost::Name(name) => format!("{name}: {rule}").into(),
            CheckedHost::Address(_) => rule,
        },
    }
}

fn invalid(text: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal {
        error: TransportError::InvalidRequest,
        text: text.into(),
    }
}

#[cfg(test)]
mod tests;
