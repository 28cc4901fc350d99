//! Deliveries over TLS: whom the client trusts, and what it makes of handshakes that fail.

use std::{sync::Arc, time::Duration};

use hook_common::job::ErrorKind;
use hook_testkit::{
    certs::{TestAuthority, self_signed_server},
    dns::{Dns, zone::Reply},
    sink::{Sink, answer::End, script::Opening, script::OpeningAct, tls::Tls},
};
use hook_worker::{
    client::{Client, ClientConfig},
    tls::Verification,
};
use rustls::ServerConfig;

use crate::kit::{
    ATTEMPT, SLACK, assert_delivered, assert_retryable, attempt, config, deadlines, request,
};

/// An authority that the client trusts, and a DNS server that sends every name to the loopback.
pub(crate) struct Trust {
    pub(crate) authority: TestAuthority,
    pub(crate) dns: Dns,
}

impl Trust {
    pub(crate) async fn start() -> Self {
        let dns = Dns::start().await;
        dns.set_others(|_| Some(Reply::loopback()));
        Self {
            authority: TestAuthority::new(),
            dns,
        }
    }

    pub(crate) fn config(&self) -> ClientConfig {
        ClientConfig {
            egress_ca_file: Some(self.authority.pem_file().to_owned()),
            dns_servers: vec![self.dns.address()],
            ..config()
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.config()).expect("the settings are good")
    }
}

async fn tls_sink(server: Arc<ServerConfig>) -> Sink {
    Sink::builder(200).tls(Tls::Serve(server)).start().await
}

#[tokio::test]
async fn net_18_tl_02_tl_03_certificates_are_verified() {
    let trust = Trust::start().await;
    let stranger = TestAuthority::new();
    let name = &["sink.test"][..];
    for (what, tls) in [
        ("expired", Tls::Serve(trust.authority.expired_server(name))),
        ("self-signed", Tls::Serve(self_signed_server(name))),
        (
            "wrong name",
            Tls::Serve(trust.authority.server(&["other.test"])),
        ),
        ("unknown authority", Tls::Serve(stranger.server(name))),
        ("TLS 1.0", Tls::tls10_only()),
        ("not TLS", Tls::Say(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
    ] {
        let sink = Sink::builder(200).tls(tls).start().await;
        let report = attempt(&trust.client(), sink.url_at("sink.test", "/")).await;
        assert_eq!(
            report.error_kind,
            Some(ErrorKind::Tls),
            "{what}: {report:?}"
        );
        assert_retryable(&report, ErrorKind::Tls);
        assert_eq!(sink.request_count(), 0, "{what}");
    }
}

#[tokio::test]
async fn net_18_tl_09_url_05_the_name_is_asked_for_and_kept() {
    let trust = Trust::start().await;
    let names = ["sink.test", "xn--mller-kva.test"];
    let sink = tls_sink(trust.authority.server_by_name(&names)).await;
    let client = trust.client();
    for (host, name) in [
        ("sink.test", "sink.test"),
        ("SINK.test.", "sink.test"),
        ("m\u{fc}ller.test", "xn--mller-kva.test"),
        ("xn--mller-kva.test.", "xn--mller-kva.test"),
    ] {
        assert_delivered(&attempt(&client, sink.url_at(host, "/")).await);
        let requests = sink.requests();
        let seen = requests.last().unwrap();
        let authority = format!("{name}:{}", sink.port());
        assert_eq!(seen.header("host"), Some(&authority[..]));
        let connection = &sink.connections()[seen.connection - 1];
        assert_eq!(connection.server_name.as_deref(), Some(name));
    }
    assert_eq!(sink.connection_count(), 2, "one for each name");
}

#[tokio::test]
async fn net_18_verification_can_be_switched_off() {
    let trust = Trust::start().await;
    let sink = tls_sink(self_signed_server(&["other.test"])).await;
    let mut config = trust.config();
    config.verification = Verification::Off;
    let client = Client::new(config).unwrap();
    assert_delivered(&attempt(&client, sink.url_at("sink.test", "/")).await);
}

#[tokio::test]
async fn net_18_tl_07_a_handshake_without_end_is_a_timeout() {
    let trust = Trust::start().await;
    let server = trust.authority.server(&["sink.test"]);
    for tls in [Tls::Stall, Tls::Drip(server, Duration::from_millis(200))] {
        let sink = Sink::builder(200).tls(tls).start().await;
        let mut deadlines = deadlines(ATTEMPT);
        deadlines.connect = Duration::from_millis(500);
        let report = trust
            .client()
            .deliver(request(sink.url_at("sink.test", "/")), deadlines)
            .await;
        assert_retryable(&report, ErrorKind::Timeout);
        assert!(report.duration >= Duration::from_millis(500));
        assert!(report.duration < Duration::from_millis(500) + SLACK);
    }
}

#[tokio::test]
async fn tl_08_a_huge_chain_is_refused() {
    let trust = Trust::start().await;
    let server = trust
        .authority
        .huge_chain_server(&["sink.test"], 1024 * 1024);
    let sink = tls_sink(server).await;
    let report = attempt(&trust.client(), sink.url_at("sink.test", "/")).await;
    assert_retryable(&report, ErrorKind::Tls);
}

#[tokio::test]
async fn a_reset_during_the_handshake_is_a_failed_connection() {
    let trust = Trust::start().await;
    let sink = Sink::builder(200)
        .tls(Tls::Serve(trust.authority.server(&["sink.test"])))
        .openings(|_| Opening::act(OpeningAct::Finish(End::Reset)))
        .start()
        .await;
    let report = attempt(&trust.client(), sink.url_at("sink.test", "/")).await;
    assert_retryable(&report, ErrorKind::Connect);
}

#[tokio::test]
async fn a_connection_under_tls_is_used_again() {
    let trust = Trust::start().await;
    let sink = tls_sink(trust.authority.server(&["sink.test"])).await;
    let client = trust.client();
    for _ in 0..5 {
        assert_delivered(&attempt(&client, sink.url_at("sink.test", "/")).await);
    }
    assert_eq!(sink.connection_count(), 1);
    let offered = &sink.connections()[0].protocols;
    assert_eq!(offered, &["h2", "http/1.1"]);
}

#[test]
fn a_file_without_certificates_is_a_bad_setting() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    for path in [empty.path(), std::path::Path::new("/nonexistent/ca.pem")] {
        let config = ClientConfig {
            egress_ca_file: Some(path.to_owned()),
            ..config()
        };
        assert!(Client::new(config).is_err());
    }
}
