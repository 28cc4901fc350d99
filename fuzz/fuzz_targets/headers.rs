//! Accepted headers can be sent as they are.
#![no_main]

use hook_common::headers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|given: Vec<(String, String)>| {
    let Ok(accepted) = headers::check(given.clone(), None) else {
        return;
    };
    assert_eq!(accepted.len(), given.len());
    for (name, value) in &accepted {
        http::HeaderName::from_bytes(name.as_bytes()).expect("a name that can be sent");
        http::HeaderValue::from_str(value).expect("a value that can be sent");
        assert!(!headers::is_reserved(name));
    }
    assert_eq!(headers::check(accepted.clone(), None), Ok(accepted));
});
