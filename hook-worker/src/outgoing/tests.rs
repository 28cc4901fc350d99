//! Whatever a row holds, it becomes a request that can be sent, or a refusal.

use hook_common::job::JobId;
use proptest::prelude::*;

use super::*;

fn request(url: String, headers: Vec<(String, String)>) -> Request {
    Request {
        job_id: JobId::parse("01890a5d-ac96-774b-bcce-b302099a8057").unwrap(),
        attempt: 3,
        method: Method::Post,
        url,
        headers,
        body: Bytes::from_static(b"{}"),
        timestamp: 1_700_000_000,
        signatures: None,
    }
}

fn outgoing(url: &str, headers: Vec<(String, String)>) -> Result<Outgoing, Refusal> {
    let rules = Rules {
        allow_nets: &AllowNets::default(),
        cleartext: Cleartext::Allowed,
    };
    Outgoing::new(request(url.to_owned(), headers), rules)
}

#[test]
fn each_form_names_the_destination_in_its_own_way() {
    let outgoing = outgoing("https://Example.com./a?b#c", Vec::new()).unwrap();
    let forms = [
        (Form::Origin, "/a?b", Some("example.com")),
        (
            Form::Absolute,
            "https://example.com/a?b",
            Some("example.com"),
        ),
        (Form::Pseudo, "https://example.com/a?b", None),
    ];
    for (form, uri, host) in forms {
        let request = outgoing.to_http(form);
        assert_eq!(request.uri().to_string(), uri);
        let seen = request
            .headers()
            .get(HOST)
            .map(|value| value.to_str().unwrap());
        assert_eq!(seen, host);
    }
    assert_eq!(outgoing.endpoint.authority(), "example.com:443");
}

#[test]
fn sd_20_a_refusal_names_a_name_and_never_an_address() {
    let refusal = outgoing("http://db.internal/", Vec::new()).err().unwrap();
    assert_eq!(refusal.error, TransportError::BlockedAddress);
    assert!(refusal.text.contains("db.internal"));
    let refusal = outgoing("http://10.9.8.7/", Vec::new()).err().unwrap();
    assert!(!refusal.text.contains("10.9.8.7"));
}

#[test]
fn url_03_a_refusal_shows_nothing_of_the_path() {
    for url in [
        "http://sink.test:22/SECRET?s=SECRET",
        "ftp://sink.test/SECRET",
        "http:// /SECRET",
    ] {
        let refusal = outgoing(url, Vec::new()).err().unwrap();
        assert!(!format!("{refusal:?}").contains("SECRET"), "{url}");
    }
    let headers = vec![("x".to_owned(), "SECRET\n".to_owned())];
    let refusal = outgoing("http://sink.test/", headers).err().unwrap();
    assert!(!format!("{refusal:?}").contains("SECRET"));
}

proptest! {
    /// Rows made by SQL hold anything at all.
    #[test]
    fn del_12_any_row_is_sent_or_refused(
        url in "\\PC{0,40}|https?://\\PC{0,40}|http://[a-z0-9._\\[\\]:@%-]{0,20}(/\\PC{0,20})?",
        name in "\\PC{0,12}|[a-zA-Z-]{1,12}",
        value in "\\PC{0,20}|[ -~\\t]{0,20}",
    ) {
        if let Ok(outgoing) = outgoing(&url, vec![(name, value)]) {
            let request = outgoing.to_http(Form::Origin);
            prop_assert!(request.uri().to_string().starts_with('/'));
            for name in [HOST, CONTENT_LENGTH] {
                prop_assert_eq!(request.headers().get_all(name).iter().count(), 1);
            }
        }
    }
}
