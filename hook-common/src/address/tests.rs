use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Checks that exactly the addresses from `first` to `last` are refused: their neighbours pass.
fn check_block(first: &str, last: &str) {
    for inside in [first, last] {
        assert!(!is_public(ip(inside)), "{inside} must be refused");
    }
    for (edge, step) in [(first, -1), (last, 1)] {
        let neighbour = neighbour(ip(edge), step);
        assert!(is_public(neighbour), "{neighbour} beside {edge} must pass");
    }
}

fn neighbour(address: IpAddr, step: i8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits().wrapping_add_signed(step.into())).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits().wrapping_add_signed(step.into())).into(),
    }
}

#[test]
fn special_ipv4_blocks_end_where_they_should() {
    check_block("10.0.0.0", "10.255.255.255");
    check_block("100.64.0.0", "100.127.255.255");
    check_block("127.0.0.0", "127.255.255.255");
    check_block("168.63.129.16", "168.63.129.16");
    check_block("169.254.0.0", "169.254.255.255");
    check_block("172.16.0.0", "172.31.255.255");
    check_block("192.0.0.0", "192.0.0.255");
    check_block("192.0.2.0", "192.0.2.255");
    check_block("192.31.196.0", "192.31.196.255");
    check_block("192.52.193.0", "192.52.193.255");
    check_block("192.88.99.0", "192.88.99.255");
    check_block("192.168.0.0", "192.168.255.255");
    check_block("192.175.48.0", "192.175.48.255");
    check_block("198.18.0.0", "198.19.255.255");
    check_block("198.51.100.0", "198.51.100.255");
    check_block("203.0.113.0", "203.0.113.255");
}

#[test]
fn special_ipv4_blocks_at_the_ends_of_the_space() {
    for inside in [
        "0.0.0.0",
        "0.255.255.255",
        "224.0.0.0",
        "239.255.255.255",
        "240.0.0.0",
        "255.255.255.255",
    ] {
        assert!(!is_public(ip(inside)), "{inside}");
    }
    assert!(is_public(ip("1.0.0.0")));
    assert!(is_public(ip("223.255.255.255")));
}

#[test]
fn special_ipv6_blocks_inside_global_unicast_end_where_they_should() {
    check_block("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff");
    check_block("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    check_block("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff");
    check_block("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff");
    check_block("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff");
}

#[test]
fn only_global_unicast_ipv6_is_public() {
    assert!(!is_public(ip("1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")));
    assert!(is_public(ip("2000::")));
    assert!(is_public(ip("3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff")));
    assert!(is_public(ip("3fff:1000::")));
    assert!(!is_public(ip("4000::")));
}

#[test]
fn special_ipv6_addresses_are_named() {
    let expected = [
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::2", "IPv4-compatible"),
        ("::127.0.0.1", "IPv4-compatible"),
        ("::ffff:8.8.8.8", "IPv4-mapped"),
        ("::ffff:0:8.8.8.8", "IPv4-translated"),
        ("64:ff9b::a9fe:a9fe", "NAT64"),
        ("64:ff9b:1::1", "local NAT64"),
        ("64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "local NAT64"),
        ("64:ff9b:2::1", "not assigned"),
        ("100::1", "discard"),
        ("100:0:0:1::1", "dummy prefix"),
        ("2001::1", "protocol assignments"),
        ("2001:2::1", "protocol assignments"),
        ("2001:10::1", "protocol assignments"),
        ("2001:20::1", "protocol assignments"),
        ("5f00::1", "segment routing"),
        ("fc00::", "unique local"),
        ("fd20:ce::254", "unique local"),
        ("fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "unique local"),
        ("fe80::1", "link-local"),
        ("febf::1", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
    ];
    for (address, purpose) in expected {
        assert_eq!(special_purpose(ip(address)), Some(purpose), "{address}");
    }
}

#[test]
fn sd_08_nat64_is_refused_whatever_is_inside() {
    for inside in ["64:ff9b::a00:1", "64:ff9b::808:808"] {
        assert!(!AllowNets::default().is_allowed(ip(inside)), "{inside}");
        let opened = AllowNets::parse("10.0.0.0/8,8.8.8.8/32").unwrap();
        assert!(!opened.is_allowed(ip(inside)), "{inside}");
    }
    assert!(
        AllowNets::parse("64:ff9b::/96")
            .unwrap()
            .is_allowed(ip("64:ff9b::a00:1"))
    );
}

#[test]
fn networks_are_opened_exactly() {
    let opened = AllowNets::parse("10.1.2.3/16, ::1/128 ,192.168.7.7").unwrap();
    for inside in [
        "10.1.0.0",
        "10.1.255.255",
        "::1",
        "192.168.7.7",
        "8.8.8.8",
        "::ffff:10.1.9.9",
    ] {
        assert!(opened.is_allowed(ip(inside)), "{inside}");
    }
    for outside in [
        "10.0.255.255",
        "10.2.0.0",
        "::2",
        "192.168.7.8",
        "::ffff:10.2.0.0",
        "::10.1.0.0",
    ] {
        assert!(!opened.is_allowed(ip(outside)), "{outside}");
    }
}

#[test]
fn the_setting_is_read_or_refused() {
    assert!(AllowNets::parse("").unwrap().is_empty());
    assert!(AllowNets::parse(" , ").unwrap().is_empty());
    for bad in [
        "10.0.0.0/33",
        "10.0.0/8",
        "localhost",
        "::1/129",
        "10.0.0.0/8;::1",
        "10.0.0.0/-1",
    ] {
        assert!(AllowNets::parse(bad).is_err(), "{bad}");
    }
    assert_eq!(
        AllowNets::parse("10.0.0.0/8,what"),
        Err(NotANetwork("what".to_owned()))
    );
}
