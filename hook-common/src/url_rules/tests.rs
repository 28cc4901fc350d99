use super::*;

mod properties;

/// Names a test after the id of the case that it holds.
macro_rules! cases {
    ($check:ident: $($id:ident $input:expr $(, $more:expr)*;)+) => {
        $(#[test] fn $id() { $check($input $(, $more)*); })+
    };
}

fn spelled(text: &str) -> CheckedUrl {
    check(text).unwrap_or_else(|problem| panic!("{text:?} was refused: {problem}"))
}

/// A literal address that is refused, as long as nothing is opened, before any connection.
fn refused_target(text: &str) {
    let problem = forbidden(&spelled(text), &AllowNets::default());
    assert_eq!(
        problem.map(|p| p.code),
        Some(Code::TargetForbidden),
        "{text:?}"
    );
}

fn allowed_target(text: &str) {
    assert_eq!(
        forbidden(&spelled(text), &AllowNets::default()),
        None,
        "{text:?}"
    );
}

fn refused_as(text: &str, code: Code) {
    let problem = check(text).err();
    assert_eq!(problem.map(|p| p.code), Some(code), "{text:?}");
}

fn invalid_url(text: &str) {
    refused_as(text, Code::UrlInvalid);
}

fn forbidden_scheme(text: &str) {
    refused_as(text, Code::SchemeForbidden);
}

fn forbidden_port(text: &str) {
    refused_as(text, Code::PortForbidden);
}

cases! { refused_target:
    sl_02_all_of_127_is_loopback "http://127.255.255.254/";
    sl_03_decimal_form "http://2130706433/";
    sl_04_hex_form "http://0x7f000001/";
    sl_05_octal_form "http://017700000001/";
    sl_09_trailing_dot_of_an_address "http://127.0.0.1./";
    sl_10_percent_encoded_digits "http://%31%32%37.0.0.1/";
    sl_11_circled_digits "http://①②⑦.⓪.⓪.①/";
    sl_12_ideographic_full_stops "http://127。0。0。1/";
    sl_13_zero "http://0/";
    sl_14_unspecified_address "http://0.0.0.0:8080/";
    sl_15_a_number_inside_this_network "http://256/";
    sl_18_metadata_in_hex "http://0xA9FEA9FE/";
    sl_19_metadata_in_octal "http://0251.0376.0251.0376/";
    sl_20_metadata_in_three_parts "http://169.254.43518/";
    sl_21_no_slashes "http:169.254.169.254";
    sl_25_private_10 "http://10.0.0.1/";
    sl_26_private_172_16 "http://172.16.0.1/";
    sl_29_shared_by_carriers "http://100.64.0.1/";
    sl_30_metadata_inside_the_shared_block "http://100.100.100.200/";
    sl_35_ipv4_compatible "http://[::127.0.0.1]/";
    sl_36_ipv4_translated "http://[::ffff:0:7f00:1]/";
    sl_39_local_nat64 "http://[64:ff9b:1::a9fe:a9fe]/";
    sl_41_teredo "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/";
    sl_42_link_local "http://[fe80::1]/";
    sl_46_multicast "http://224.0.0.1/";
    sl_47_broadcast "http://255.255.255.255/";
    sl_48_class_e "http://240.0.0.1/";
    sl_49_benchmark_net "http://198.18.0.1/";
    sd_20_localhost "http://localhost/";
    sd_22_localhost_in_capitals "http://LOCALHOST/";
    sd_23_below_localhost "http://foo.localhost/";
    sd_25_internal "http://metadata.google.internal/";
    sd_28_circled_letter "http://ⓛocalhost/";
    sd_29_soft_hyphen "http://loc\u{ad}alhost/";
    // Further ones of the same kinds.
    localhost_with_a_dot "http://localhost./";
    below_localhost_with_a_dot "http://a.localhost./";
    single_label "http://postgres:5432/";
    local "http://printer.local/";
    service "http://api.default.svc/";
    cluster_local "http://api.default.svc.cluster.local/";
    loopback_v6 "http://[::1]/";
    mapped_loopback "http://[::ffff:127.0.0.1]/";
    mapped_public "http://[::ffff:8.8.8.8]/";
    nat64 "http://[64:ff9b::a00:1]/";
    six_to_four "http://[2002:7f00:1::]/";
    unique_local "http://[fd00:ec2::254]/";
    backslashes r"http:\\169.254.169.254\latest";
    one_slash "http:/169.254.169.254/";
    a_host_after_user_info "http://example.com@127.0.0.1/";
    fullwidth_digits "http://１２７.０.０.１/";
    short_form "http://127.1/";
    hex_dots "http://0x7f.0.0.0x1./";
    a_cloud_service_on_a_public_address "http://168.63.129.16/";
}

cases! { allowed_target:
    sn_03_below_the_shared_block "http://100.63.255.255/";
    sn_04_above_the_shared_block "http://100.128.0.0/";
    sn_05_below_loopback "http://126.255.255.255/";
    sn_06_above_loopback "http://128.0.0.0/";
    sn_07_below_link_local "http://169.253.255.255/";
    sn_09_below_172_16 "http://172.15.255.255/";
    sn_13_below_the_benchmark_net "http://198.17.255.255/";
    sn_15_below_multicast "http://223.255.255.255/";
    sn_17_global_unicast_v6 "http://[2001:4860:4860::8888]/";
    sd_02_names_are_left_to_the_worker "http://victim.test/h";
    a_name_that_only_looks_inner "http://mylocalhost.test/";
    a_name_that_ends_like_an_inner_one "http://notlocal.example/";
    underscore "http://svc_a.test/";
}

cases! { invalid_url:
    sd_31_punycode_without_need "http://xn--localhost-.test/";
    us_01_empty "";
    us_03_no_scheme "//example.com/x";
    us_07_user_info_without_host "http://a:b@";
    us_08_host_is_a_dot "http://.";
    us_11_space_in_host "http://exa mple.com/";
    us_13_line_break "http://example.com/\r\nX: y";
    us_14_tab_in_host "http://exa\tmple.com/";
    us_15_nul "http://example.com/\u{0}";
    us_17_open_bracket "http://[::1";
    us_18_ipv4_in_brackets "http://[127.0.0.1]/";
    us_19_address_part_too_large "http://999.1.1.1/";
    us_20_five_parts "http://1.2.3.4.5/";
    us_21_bad_octal "http://08.8.8.8/";
    us_23_empty_punycode "http://xn--/";
    us_24_port_above_65535 "http://example.com:65536/";
    us_42_label_of_64 &format!("http://{}.test/", "a".repeat(64));
    us_44_one_octet_too_long &long_url(URL_BYTES_MAX + 1);
    // Further ones of the same kinds.
    relative "/hooks/42";
    bare_host_name "example.com/x";
    scheme_alone "http:";
    scheme_and_slashes "http://";
    two_dots "http://..";
    empty_label "http://a..test/";
    leading_dot "http://.a.test/";
    two_trailing_dots "http://a.test../";
    leading_space " http://example.com/";
    trailing_space "http://example.com/ ";
    trailing_line_break "http://example.com/\n";
    delete_character "http://example.com/\u{7f}";
    c1_control "http://example.com/\u{85}";
    port_negative "http://example.com:-1/";
    port_not_a_number "http://example.com:http/";
    zone_of_an_address "http://[fe80::1%25eth0]/";
    percent_encoded_nul_in_host "http://a%00b.test/";
    percent_encoded_slash_in_host "http://a%2fb.test/";
    percent_encoded_space_in_host "http://a%20b.test/";
    punctuation_in_host "http://a,b.test/";
    star_in_host "http://*.test/";
    grows_too_long_when_normalised &format!("http://a.test/{}", "é".repeat(3000));
    name_of_254 &format!("http://{}/", name_of(254));
    colon_in_user_name "http://a%3Ab:c@example.com/";
    user_info_too_long &format!("http://{}@a.test/", "u".repeat(4096));
    control_in_user_info "http://a%0d%0a:c@example.com/";
}

cases! { forbidden_scheme:
    us_31_file "file:///etc/passwd";
    us_32_gopher "gopher://127.0.0.1:6379/_FLUSHALL";
    us_35_data "data:text/plain,hi";
    us_36_javascript "javascript:alert(1)";
    us_39_blob "blob:https://example.com/x";
    us_40_mailto "mailto:a@example.com";
    ftp "ftp://example.com/";
    web_socket "wss://example.com/";
    unix "unix:/var/run/docker.sock";
    host_and_port_without_scheme "localhost:8080/x";
    unreadable_rest "dict://[::1/";
}

cases! { forbidden_port:
    us_29_irc "http://example.com:6667/";
    zero "http://example.com:0/";
    ssh "http://example.com:22/";
    smtp "http://example.com:25/";
    below_1024 "http://example.com:1023/";
    sip "https://example.com:5060/";
    x11 "http://example.com:6000/";
    nfs "http://example.com:2049/";
    last_bad_port "http://example.com:10080/";
}

/// An URL of exactly so many octets.
fn long_url(length: usize) -> String {
    let head = "http://sink.test/";
    format!("{head}{}", "a".repeat(length - head.len()))
}

/// A host name of exactly so many octets, in labels of at most 63.
fn name_of(length: usize) -> String {
    let labels = format!("{}.", "a".repeat(49)).repeat(length / 50 + 1);
    let name = &labels[..length];
    assert!(!name.ends_with('.'));
    name.to_owned()
}

fn check_spelling(text: &str, url: &str, target: &str) {
    let checked = spelled(text);
    assert_eq!(checked.url, url, "{text:?}");
    assert_eq!(checked.target.as_str(), target, "{text:?}");
}

cases! { check_spelling:
    us_44_the_limit_itself &long_url(URL_BYTES_MAX), &long_url(URL_BYTES_MAX), "sink.test";
    us_45_case_port_and_dots "HTTP://Sink.TEST:80/a/../b", "http://sink.test/b", "sink.test";
    us_45_trailing_dot "http://sink.test./b", "http://sink.test/b", "sink.test";
    us_45_plain "http://sink.test/b", "http://sink.test/b", "sink.test";
    us_45_scheme "https://sink.test/b", "https://sink.test/b", "sink.test";
    us_45_port "http://sink.test:8080/b", "http://sink.test:8080/b", "sink.test";
    us_47_user_info "http://u:s3cr3t@sink.test/p", "http://sink.test/p", "sink.test";
    url_05_international "http://müller.test/", "http://xn--mller-kva.test/", "xn--mller-kva.test";
    url_05_international_tls "https://müller.test/", "https://xn--mller-kva.test/", "xn--mller-kva.test";
    url_05_underscore "http://svc_a.test/", "http://svc_a.test/", "svc_a.test";
    url_05_punycode "http://xn--mller-kva.test/", "http://xn--mller-kva.test/", "xn--mller-kva.test";
    url_05_international_dot "https://müller.test./", "https://xn--mller-kva.test/", "xn--mller-kva.test";
    fragment "http://a.test/x?y#z", "http://a.test/x?y", "a.test";
    no_path "http://a.test", "http://a.test/", "a.test";
    query_without_path "http://a.test?x", "http://a.test/?x", "a.test";
    default_tls_port "https://a.test:443/", "https://a.test/", "a.test";
    other_default_port "http://a.test:443/", "http://a.test:443/", "a.test";
    port_with_zeros "http://a.test:008080/", "http://a.test:8080/", "a.test";
    address_v4 "http://8.8.8.8./", "http://8.8.8.8/", "8.8.8.8";
    address_v6 "http://[2001:4860:4860:0:0:0:0:8888]:8080/", "http://[2001:4860:4860::8888]:8080/", "2001:4860:4860::8888";
    space_escaped "http://a.test/x%20y", "http://a.test/x%20y", "a.test";
    name_at_the_limit &format!("http://{}/", name_of(253)), &format!("http://{}/", name_of(253)), &name_of(253);
    name_at_the_limit_with_a_dot &format!("http://{}./", name_of(253)), &format!("http://{}/", name_of(253)), &name_of(253);
    label_at_the_limit &format!("http://{}.test/", "a".repeat(63)), &format!("http://{}.test/", "a".repeat(63)), &format!("{}.test", "a".repeat(63));
    backslash "http:\\\\a.test\\b", "http://a.test/b", "a.test";
    at_sign_in_path "http://a.test\\@b.test/", "http://a.test/@b.test/", "a.test";
    no_slash_at_all "http:a.test", "http://a.test/", "a.test";
}

fn check_basic(text: &str, basic: Option<&str>) {
    let checked = spelled(text);
    assert_eq!(checked.basic.as_deref(), basic, "{text:?}");
    assert!(!checked.url.contains('@'), "{text:?}");
    assert!(!format!("{checked:?}").contains("s3cr3t"), "{text:?}");
}

cases! { check_basic:
    us_47_basic "http://u:s3cr3t@sink.test/p", Some("Basic dTpzM2NyM3Q=");
    url_02_basic "http://hookuser:s3cr3t@sink.test:8080/p", Some("Basic aG9va3VzZXI6czNjcjN0");
    user_alone "http://u@sink.test/", Some("Basic dTo=");
    password_alone "http://:s3cr3t@sink.test/", Some("Basic OnMzY3IzdA==");
    percent_encoded "http://a%40b:%70%zz@sink.test/", Some("Basic YUBiOnAleno=");
    not_ascii "http://ü:é@sink.test/", Some("Basic w7w6w6k=");
    empty_user_info "http://@sink.test/", None;
    empty_user_and_password "http://:@sink.test/", None;
    none "http://sink.test/", None;
}

#[test]
fn once_networks_are_opened_the_address_alone_decides() {
    let opened = AllowNets::parse("127.0.0.0/8").unwrap();
    for text in [
        "http://localhost/",
        "http://x.internal/",
        "http://127.0.0.1/",
    ] {
        assert_eq!(forbidden(&spelled(text), &opened), None, "{text}");
    }
    let problem = forbidden(&spelled("http://10.0.0.1/"), &opened);
    assert_eq!(problem.map(|p| p.code), Some(Code::TargetForbidden));
}

#[test]
fn bad_ports_are_sorted_and_allowed_ports_pass() {
    assert!(BAD_PORTS.is_sorted());
    for port in [80, 443, 1024, 1718, 3000, 6664, 6670, 8080, 8443, 65535] {
        assert_eq!(spelled(&format!("http://a.test:{port}/")).port, port);
    }
    for port in BAD_PORTS {
        forbidden_port(&format!("https://a.test:{port}/"));
    }
}

#[test]
fn a_target_is_found_however_its_host_is_given() {
    for (text, target) in [
        ("localhost", "localhost"),
        ("LOCALHOST.", "localhost"),
        ("localhost:14400", "localhost"),
        ("http://LocalHost:14400/ok?a=b", "localhost"),
        ("https://user:secret@example.com/x", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("127.1", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]:8080", "::1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("[::ffff:7f00:1]", "127.0.0.1"),
    ] {
        assert_eq!(
            target_of_host(text).map(|target| target.to_string()),
            Ok(target.to_owned()),
            "{text}"
        );
    }
    for text in [
        "",
        "two words",
        "a/b",
        "user@example.com",
        "example.com:22",
        "ftp://example.com",
        "a..b",
    ] {
        assert!(target_of_host(text).is_err(), "{text}");
    }
}

#[test]
fn an_address_has_one_target_in_both_families() {
    for url in ["http://[::ffff:127.0.0.1]/", "http://[::FFFF:7f00:1]:8080/"] {
        assert_eq!(spelled(url).target.as_str(), "127.0.0.1", "{url}");
    }
    assert_eq!(spelled("http://[::7f00:1]/").target.as_str(), "::7f00:1");
}
