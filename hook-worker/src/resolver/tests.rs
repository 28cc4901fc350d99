//! Order and bounds of what is remembered.

use super::*;

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn families_take_turns_and_ipv4_begins() {
    let mixed = addresses(&["::2", "::3", "10.0.0.1", "::4", "10.0.0.2"]);
    let expected = addresses(&["10.0.0.1", "::2", "10.0.0.2", "::3", "::4"]);
    assert_eq!(by_turns(mixed.into_iter()), expected);
    assert_eq!(by_turns(std::iter::empty()), Vec::<IpAddr>::new());
}

#[tokio::test]
async fn names_beyond_the_bound_do_not_grow_the_cache() {
    let resolver = Resolver::new(&["127.0.0.1:53".parse().unwrap()]).unwrap();
    let one: Addresses = addresses(&["192.0.2.1"]).into();
    let until = Instant::now() + KEPT_MAX;
    for number in 0..NAMES_MAX * 2 + 1 {
        resolver.remember(&format!("n{number}.test"), Arc::clone(&one), until);
        let size = resolver.cache.lock().unwrap().len();
        assert!(size <= NAMES_MAX);
    }
    let last = format!("n{}.test", NAMES_MAX * 2);
    assert_eq!(resolver.remembered(&last, Instant::now()), Some(one));
    assert_eq!(resolver.remembered(&last, until), None);
}

#[test]
fn localhost_is_no_matter_of_dns() {
    assert!(is_localhost("localhost") && is_localhost("a.localhost"));
    assert!(!is_localhost("localhost.test") && !is_localhost("mylocalhost"));
}
