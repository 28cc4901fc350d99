//! Tests of the stub DNS server with hand-made questions.

use std::net::IpAddr;

use hickory_proto::op::{Edns, Query};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::time::{Instant, timeout};

use super::*;
use crate::wait::wait_for;

const LIMIT: Duration = Duration::from_secs(10);

fn question(name: &str, wanted: RecordType, payload_max: Option<u16>) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), wanted));
    if let Some(bytes) = payload_max {
        let mut edns = Edns::new();
        edns.set_max_payload(bytes);
        message.set_edns(edns);
    }
    message
}

async fn ask_udp(dns: &Dns, question: &Message) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let bytes = question.to_vec().unwrap();
    socket.send_to(&bytes, dns.address()).await.unwrap();
    let mut buffer = vec![0; 65_535];
    let received = timeout(LIMIT, socket.recv(&mut buffer)).await.unwrap();
    let answer = Message::from_vec(&buffer[..received.unwrap()]).unwrap();
    assert_eq!(answer.metadata.id, question.metadata.id);
    answer
}

async fn ask_tcp(dns: &Dns, question: &Message) -> Message {
    let mut stream = TcpStream::connect(dns.address()).await.unwrap();
    let bytes = question.to_vec().unwrap();
    stream
        .write_u16(u16::try_from(bytes.len()).unwrap())
        .await
        .unwrap();
    stream.write_all(&bytes).await.unwrap();
    let length = stream.read_u16().await.unwrap();
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await.unwrap();
    Message::from_vec(&buffer).unwrap()
}

/// The addresses of a name, or the code of the failure.
async fn look_up(dns: &Dns, name: &str, wanted: RecordType) -> Result<Vec<IpAddr>, ResponseCode> {
    let answer = ask_udp(dns, &question(name, wanted, None)).await;
    let code = answer.metadata.response_code;
    if code == ResponseCode::NoError {
        Ok(addresses(&answer))
    } else {
        Err(code)
    }
}

fn addresses(answer: &Message) -> Vec<IpAddr> {
    let address = |data: &RData| data.ip_addr();
    let records = answer.answers.iter();
    records.filter_map(|record| address(&record.data)).collect()
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_name_has_addresses_of_both_families_in_order() {
    let dns = Dns::start().await;
    let reply = Reply::parse(&["127.0.0.2", "fd00::1", "127.0.0.1"]);
    dns.set("Sink.test.", reply.ttl_seconds(7));
    let four = ask_udp(&dns, &question("sink.TEST.", RecordType::A, None)).await;
    assert_eq!(addresses(&four), ips(&["127.0.0.2", "127.0.0.1"]));
    assert_eq!(four.answers[0].ttl, 7);
    let six = look_up(&dns, "sink.test", RecordType::AAAA).await;
    assert_eq!(six, Ok(ips(&["fd00::1"])));
    assert_eq!(dns.lookups("sink.test"), 1);
    assert_eq!(dns.asked().len(), 2);
}

#[tokio::test]
async fn questions_can_fail_in_every_way() {
    let dns = Dns::start().await;
    dns.set("a.test", Reply::server_failure());
    dns.set("b.test", Reply::no_data());
    dns.set("c.test", Reply::refused());
    dns.set("d.test", Reply::silence());
    let a = look_up(&dns, "a.test", RecordType::A).await;
    assert_eq!(a, Err(ResponseCode::ServFail));
    assert_eq!(look_up(&dns, "b.test", RecordType::A).await, Ok(Vec::new()));
    let c = look_up(&dns, "c.test", RecordType::A).await;
    assert_eq!(c, Err(ResponseCode::Refused));
    let unknown = look_up(&dns, "unknown.test", RecordType::A).await;
    assert_eq!(unknown, Err(ResponseCode::NXDomain));
    let silent = look_up(&dns, "d.test", RecordType::A);
    assert!(timeout(Duration::from_millis(50), silent).await.is_err());
    assert_eq!(dns.lookups("d.test"), 1);
}

#[tokio::test]
async fn replies_change_per_lookup_and_over_time() {
    let dns = Dns::start().await;
    let (one, two) = (Reply::parse(&["10.0.0.1"]), Reply::parse(&["10.0.0.2"]));
    dns.set("turn.test", Rule::PerLookup(vec![one.clone(), two.clone()]));
    for expected in ["10.0.0.1", "10.0.0.2", "10.0.0.2"] {
        // The other family does not use up a turn.
        look_up(&dns, "turn.test", RecordType::AAAA).await.unwrap();
        let found = look_up(&dns, "turn.test", RecordType::A).await;
        assert_eq!(found, Ok(ips(&[expected])));
    }
    assert_eq!(dns.lookups("turn.test"), 3);

    let change = Duration::from_millis(100);
    let rule = Rule::OverTime(vec![(Duration::ZERO, one), (change, two)]);
    let start = Instant::now();
    dns.set("time.test", rule);
    wait_for(
        LIMIT,
        async || look_up(&dns, "time.test", RecordType::A).await.unwrap(),
        |found| *found == ips(&["10.0.0.2"]),
    )
    .await;
    assert!(start.elapsed() >= change);
}

#[tokio::test]
async fn aliases_are_followed_and_shown() {
    let dns = Dns::start().await;
    dns.set("a.test", Reply::alias("b.test"));
    dns.set("b.test", Reply::alias("c.test"));
    dns.set("c.test", Reply::parse(&["10.1.2.3"]));
    let answer = ask_udp(&dns, &question("a.test.", RecordType::A, None)).await;
    assert_eq!(answer.answers.len(), 3);
    assert_eq!(addresses(&answer), ips(&["10.1.2.3"]));
    assert_eq!(dns.lookups("c.test"), 0);
    dns.set("loop.test", Reply::alias("loop.test"));
    let found = look_up(&dns, "loop.test", RecordType::A).await;
    assert_eq!(found, Err(ResponseCode::ServFail));
}

#[tokio::test]
async fn a_long_answer_is_cut_over_udp_and_whole_over_tcp() {
    let dns = Dns::start().await;
    let many: Vec<IpAddr> = (0..200_u8).map(|n| [127, 0, 1, n].into()).collect();
    dns.set("many.test", Reply::addresses(many.clone()));
    let short = question("many.test.", RecordType::A, None);
    let answer = ask_udp(&dns, &short).await;
    assert!(answer.metadata.truncation && answer.answers.is_empty());
    assert_eq!(addresses(&ask_tcp(&dns, &short).await), many);
    let roomy = question("many.test.", RecordType::A, Some(8192));
    assert_eq!(addresses(&ask_udp(&dns, &roomy).await), many);
}

#[tokio::test]
async fn names_without_a_rule_can_be_computed_and_answers_can_wait() {
    let dns = Dns::start().await;
    dns.set_others(|name| {
        let number: u8 = name.strip_suffix(".many.test")?.parse().ok()?;
        Some(Reply::address([127, 0, 2, number]))
    });
    let found = look_up(&dns, "77.many.test", RecordType::A).await;
    assert_eq!(found, Ok(ips(&["127.0.2.77"])));
    let found = look_up(&dns, "x.many.test", RecordType::A).await;
    assert_eq!(found, Err(ResponseCode::NXDomain));
    let delay = Duration::from_millis(60);
    dns.set("slow.test", Reply::loopback().after(delay));
    let start = Instant::now();
    look_up(&dns, "slow.test", RecordType::A).await.unwrap();
    assert!(start.elapsed() >= delay);
}
