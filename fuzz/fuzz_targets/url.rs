//! An accepted URL has one spelling, which says where it goes to everybody alike.
#![no_main]

use hook_common::address::AllowNets;
use hook_common::url_rules::{self, CheckedHost};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(once) = url_rules::check(text) else {
        return;
    };
    let uri: http::Uri = once.url.parse().expect("the HTTP library takes it");
    let host = uri.host().map(|host| host.trim_matches(['[', ']']));
    assert_eq!(host, Some(once.target.as_str()));
    let twice = url_rules::check(&once.url).expect("its one spelling is accepted");
    assert_eq!(twice.url, once.url);
    assert_eq!(twice.target, once.target);
    assert_eq!(twice.host, once.host);
    let nothing_opened = AllowNets::default();
    assert_eq!(
        url_rules::forbidden(&twice, &nothing_opened),
        url_rules::forbidden(&once, &nothing_opened)
    );
    if let CheckedHost::Name(name) = &once.host {
        assert!(name.parse::<std::net::IpAddr>().is_err());
    }
});
