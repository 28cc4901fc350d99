//! Every request is judged, and what is accepted is JSON with the body inside it.
#![no_main]

use bytes::Bytes;
use hook_common::envelope::{self, Limits};
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;

fuzz_target!(|data: &[u8]| {
    let request = Bytes::copy_from_slice(data);
    let limits = Limits::default();
    if let Ok(job) = envelope::parse_one(&request, Some("key"), &limits) {
        serde_json::from_slice::<IgnoredAny>(data).expect("what is accepted is JSON");
        let key = job.idempotency.as_ref().expect("a key was given");
        assert_eq!(key.request_sha256, envelope::request_sha256(&job));
    }
    for rejection in [
        envelope::parse_one(&request, None, &limits).err(),
        envelope::parse_legacy(&request, None, &limits).err(),
        envelope::parse_batch_json(&request, &limits).err(),
        envelope::parse_batch_ndjson(&request, &limits).err(),
    ]
    .into_iter()
    .flatten()
    {
        assert_eq!(rejection.code(), rejection.problems()[0].code);
    }
});
