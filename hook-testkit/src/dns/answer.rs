//! The wire form of a DNS answer.

use std::net::IpAddr;

use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{RData, Record};

use crate::dns::zone::{Failure, Found};

/// Longest answer over UDP to an asker that does not say what it takes, in bytes.
pub(super) const UDP_BYTES_DEFAULT: usize = 512;

/// Answers `query`; too long an answer is cut to an empty one that says so.
pub(super) fn build(query: &Message, found: &Found, bytes_max: usize) -> Option<Vec<u8>> {
    let mut message = Message::response(query.metadata.id, query.metadata.op_code);
    message.metadata.recursion_desired = query.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.add_queries(query.queries.iter().cloned());
    if let Some(edns) = &query.edns {
        let mut own = Edns::new();
        own.set_max_payload(edns.max_payload());
        message.set_edns(own);
    }
    for (from, to, ttl_seconds) in &found.aliases {
        let data = RData::CNAME(CNAME(to.clone()));
        message.add_answer(Record::from_rdata(from.clone(), *ttl_seconds, data));
    }
    match &found.end {
        Ok(addresses) => message.add_answers(addresses.iter().map(|address| {
            let data = match address {
                IpAddr::V4(address) => RData::A(A(*address)),
                IpAddr::V6(address) => RData::AAAA(AAAA(*address)),
            };
            Record::from_rdata(found.owner.clone(), found.ttl_seconds, data)
        })),
        Err(Failure::Silent) => return None,
        Err(failure) => {
            message.metadata.response_code = match failure {
                Failure::NoName => ResponseCode::NXDomain,
                Failure::Refused => ResponseCode::Refused,
                Failure::Server | Failure::Silent => ResponseCode::ServFail,
            };
            &mut message
        }
    };
    let bytes = message.to_vec().ok()?;
    if bytes.len() <= bytes_max {
        return Some(bytes);
    }
    message.truncate().to_vec().ok()
}
