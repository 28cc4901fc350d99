//! Names: how they are resolved, and which of their addresses are refused.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use hook_common::{
    address::AllowNets,
    job::{ErrorKind, Outcome},
};
use hook_testkit::{
    dns::{
        Dns,
        zone::{Reply, Rule},
    },
    proxy::ClosedPort,
    sink::Sink,
    wait::pause,
};
use hook_worker::{
    address_guard::AddressGuard,
    client::{Client, ClientConfig},
};

use crate::kit::{
    SLACK, assert_delivered, assert_permanent, assert_retryable, attempt, config, deadlines,
    request,
};

fn config_with(dns: &Dns) -> ClientConfig {
    ClientConfig {
        dns_servers: vec![dns.address()],
        ..config()
    }
}

/// A sink, a stub DNS server, and a client that asks it.
async fn set_up(rule: impl Into<Rule>) -> (Sink, Dns, Client) {
    let sink = Sink::start(200).await;
    let dns = Dns::start().await;
    dns.set("victim.test", rule);
    let client = Client::new(config_with(&dns)).expect("the settings are good");
    (sink, dns, client)
}

#[tokio::test]
async fn sd_02_sd_06_sd_08_sd_09_a_name_with_a_refused_address_is_refused() {
    for addresses in [
        &["169.254.169.254"][..],
        &["127.0.0.1", "fd00::1"],
        &["fd00::1", "127.0.0.1"],
        &["127.0.0.1", "10.0.0.1"],
        &["64:ff9b::a00:1"],
        &["::ffff:10.0.0.1"],
        &["0.0.0.0"],
    ] {
        let (sink, _dns, client) = set_up(Reply::parse(addresses)).await;
        let report = attempt(&client, sink.url_at("victim.test", "/h")).await;
        assert_permanent(&report, ErrorKind::BlockedAddress);
        assert_eq!(sink.connection_count(), 0);
        let note = report.note.unwrap();
        assert!(note.contains("victim.test"), "{note}");
        for address in addresses {
            assert!(!note.contains(address), "{note}");
        }
    }
    let (sink, dns, client) = set_up(Reply::alias("internal.test")).await;
    dns.set("internal.test", Reply::parse(&["10.1.2.3"]));
    let report = attempt(&client, sink.url_at("victim.test", "/h")).await;
    assert_permanent(&report, ErrorKind::BlockedAddress);
}

#[tokio::test]
async fn sd_10_one_lookup_serves_check_and_connect() {
    let rebinding = Rule::PerLookup(vec![
        Reply::loopback().ttl_seconds(0),
        Reply::parse(&["10.0.0.1"]).ttl_seconds(0),
    ]);
    let (sink, dns, client) = set_up(rebinding).await;
    assert_delivered(&attempt(&client, sink.url_at("victim.test", "/h")).await);
    assert_eq!(dns.lookups("victim.test"), 1);
    assert_eq!(sink.connection_count(), 1);
}

#[tokio::test]
async fn sd_11_each_attempt_is_checked_again_even_with_a_connection_at_hand() {
    let rebinding = Rule::PerLookup(vec![
        Reply::loopback().ttl_seconds(0),
        Reply::parse(&["10.0.0.1"]).ttl_seconds(0),
    ]);
    let (sink, dns, client) = set_up(rebinding).await;
    sink.set_script(503);
    let report = attempt(&client, sink.url_at("victim.test", "/h")).await;
    assert_eq!(report.response_status, Some(503));
    let report = attempt(&client, sink.url_at("victim.test", "/h")).await;
    assert_permanent(&report, ErrorKind::BlockedAddress);
    assert_eq!(sink.request_count(), 1);
    assert_eq!(dns.lookups("victim.test"), 2);
}

#[tokio::test]
async fn del_11_sd_12_sd_15_names_without_an_address_are_tried_again() {
    for reply in [
        Reply::no_name(),
        Reply::no_data(),
        Reply::server_failure(),
        Reply::refused(),
    ] {
        let (sink, dns, client) = set_up(reply).await;
        let report = attempt(&client, sink.url_at("victim.test", "/h")).await;
        assert_retryable(&report, ErrorKind::Dns);
        assert_eq!(sink.connection_count(), 0);
        // A failure is not remembered.
        dns.set("victim.test", Reply::loopback());
        assert_delivered(&attempt(&client, sink.url_at("victim.test", "/h")).await);
    }
}

#[tokio::test]
async fn a_silent_dns_server_costs_the_attempt_and_no_more() {
    let (sink, _dns, client) = set_up(Reply::silence()).await;
    let limit = Duration::from_millis(300);
    let report = client
        .deliver(request(sink.url_at("victim.test", "/h")), deadlines(limit))
        .await;
    assert_eq!(report.outcome, Outcome::Retryable);
    assert_eq!(report.error_kind, Some(ErrorKind::Timeout));
    assert!(report.duration < limit + SLACK);
}

#[tokio::test]
async fn an_answer_is_remembered_for_its_ttl_and_not_longer() {
    let (sink, dns, client) = set_up(Reply::loopback().ttl_seconds(1)).await;
    for _ in 0..20 {
        assert_delivered(&attempt(&client, sink.url_at("victim.test", "/h")).await);
    }
    assert_eq!(dns.lookups("victim.test"), 1);
    pause(Duration::from_millis(1_100)).await;
    assert_delivered(&attempt(&client, sink.url_at("victim.test", "/h")).await);
    assert_eq!(dns.lookups("victim.test"), 2);
}

#[tokio::test]
async fn net_13_a_moved_name_is_followed_at_once_when_its_ttl_allows() {
    let (sink, dns, client) = set_up(Reply::loopback().ttl_seconds(0)).await;
    let moved = Sink::builder(200)
        .bind([127, 0, 0, 2])
        .port(sink.port())
        .start()
        .await;
    assert_delivered(&attempt(&client, sink.url_at("victim.test", "/h")).await);
    dns.set("victim.test", Reply::parse(&["127.0.0.2"]).ttl_seconds(0));
    assert_delivered(&attempt(&client, sink.url_at("victim.test", "/h")).await);
    assert_eq!((sink.request_count(), moved.request_count()), (1, 1));
}

#[tokio::test]
async fn sd_16_at_most_eight_of_many_addresses_are_tried() {
    let port = ClosedPort::new();
    let sinks = Sink::builder(200).bind([0, 0, 0, 0]).start().await;
    let many = (0..1000_u16).map(|number| {
        let [high, low] = (number + 256).to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(127, 1, high, low))
    });
    let (_sink, _dns, client) = set_up(Reply::addresses(many)).await;
    let url = format!("http://victim.test:{}/h", sinks.port());
    assert_delivered(&attempt(&client, url).await);
    assert_eq!(sinks.connection_count(), 1);
    let url = format!("http://victim.test:{}/h", port.address().port());
    assert_retryable(&attempt(&client, url).await, ErrorKind::Connect);
}

#[tokio::test]
async fn sd_18_the_database_is_refused_in_an_opened_network() {
    let (sink, dns, _) = set_up(Reply::parse(&["127.0.0.9"])).await;
    let nets = AllowNets::parse("127.0.0.0/8").unwrap();
    let database = format!("127.0.0.9:{}", sink.port()).parse().unwrap();
    let client = Client::new(ClientConfig {
        guard: AddressGuard::new(nets, vec![database]),
        ..config_with(&dns)
    })
    .unwrap();
    let report = attempt(&client, sink.url_at("victim.test", "/h")).await;
    assert_permanent(&report, ErrorKind::BlockedAddress);
    let literal = format!("http://127.0.0.9:{}/h", sink.port());
    assert_permanent(&attempt(&client, literal).await, ErrorKind::BlockedAddress);
}

#[tokio::test]
async fn sd_20_inner_names_cause_no_lookup() {
    let dns = Dns::start().await;
    dns.set_others(|_| Some(Reply::loopback()));
    let client = Client::new(ClientConfig {
        guard: AddressGuard::default(),
        ..config_with(&dns)
    })
    .unwrap();
    for host in [
        "localhost",
        "metadata.google.internal",
        "db",
        "x.svc",
        "x.local",
    ] {
        let report = attempt(&client, format!("http://{host}/")).await;
        assert_permanent(&report, ErrorKind::BlockedAddress);
    }
    assert_eq!(dns.asked().len(), 0);
    // With nothing opened, a name that leads to the loopback is found out by its address.
    let report = attempt(&client, "http://victim.test/").await;
    assert_permanent(&report, ErrorKind::BlockedAddress);
}

#[tokio::test]
async fn url_05_names_with_an_underscore_and_international_ones_resolve() {
    let (sink, dns, client) = set_up(Reply::loopback()).await;
    dns.set("svc_a.test", Reply::loopback());
    dns.set("xn--mller-kva.test", Reply::loopback());
    for host in [
        "svc_a.test",
        "m\u{fc}ller.test",
        "xn--mller-kva.test",
        "m\u{fc}ller.test.",
    ] {
        assert_delivered(&attempt(&client, sink.url_at(host, "/")).await);
    }
    let hosts: Vec<_> = sink
        .requests()
        .iter()
        .map(|request| request.header("host").unwrap().to_owned())
        .collect();
    let port = sink.port();
    assert_eq!(hosts[0], format!("svc_a.test:{port}"));
    for host in &hosts[1..] {
        assert_eq!(*host, format!("xn--mller-kva.test:{port}"));
    }
}
