//! What holds for every URL, however odd.

use proptest::prelude::*;

use super::*;

/// Texts that are close enough to URLs to get past the first checks.
fn odd_url() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "http",
        "https",
        "HTTP",
        ":",
        "/",
        "//",
        "\\",
        "@",
        "?",
        "#",
        ".",
        "..",
        "%",
        "%2e",
        "%00",
        "%40",
        "[",
        "]",
        "::1",
        "::ffff:",
        "127.0.0.1",
        "0x7f",
        "2130706433",
        "1.1",
        "a",
        "b.test",
        "xn--",
        "xn--mller-kva",
        "ü",
        "ⓛ",
        "。",
        "\u{ad}",
        "\u{200d}",
        "-",
        "_",
        "80",
        "443",
        "8080",
        "6667",
        "65536",
        "\t",
        "\n",
        " ",
        "{",
        "}",
        "|",
        "^",
        "\"",
        "'",
        "<",
        "`",
        "~",
        "+",
        "é",
        "ß",
        "İ",
        "١",
        "\u{ff0e}",
        "\u{2488}",
        "u:p@",
        "localhost",
        "example.com",
    ]);
    let tail = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    let head = prop::sample::select(vec!["", "http:", "http://", "https://", "HTTPS://u:p@"]);
    (head, tail).prop_map(|(head, tail)| format!("{head}{tail}"))
}

fn holds_for(text: &str) -> Result<(), TestCaseError> {
    let Ok(once) = check(text) else {
        return Ok(());
    };
    let url = &once.url;
    prop_assert!(url.is_ascii() && url.len() <= URL_BYTES_MAX);
    prop_assert!(!url.contains('#') && !url.bytes().any(|b| b <= b' ' || b == 0x7f));
    // Whoever connects sees the same host and port, and a URL that the HTTP library takes.
    let uri: http::Uri = url.parse().map_err(|_| TestCaseError::fail(url.clone()))?;
    prop_assert_eq!(
        uri.host().map(|h| h.trim_matches(['[', ']'])),
        Some(once.target.as_str())
    );
    prop_assert!(!uri.authority().is_some_and(|a| a.as_str().contains('@')));
    prop_assert!(!once.target.as_str().ends_with('.'));
    let twice = check(url).map_err(|problem| TestCaseError::fail(problem.to_string()))?;
    prop_assert_eq!(&twice.url, url);
    prop_assert_eq!(&twice.target, &once.target);
    prop_assert_eq!(&twice.host, &once.host);
    prop_assert_eq!(twice.port, once.port);
    prop_assert_eq!(twice.basic, None);
    if let CheckedHost::Name(name) = &once.host {
        prop_assert!(
            name.parse::<IpAddr>().is_err(),
            "an address is never taken for a name"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn urls_have_one_spelling(text in odd_url()) {
        holds_for(&text)?;
    }

    #[test]
    fn any_text_is_judged(text in any::<String>(), tail in any::<String>()) {
        holds_for(&text)?;
        holds_for(&format!("http://{text}"))?;
        holds_for(&format!("https://sink.test/{tail}"))?;
    }

    #[test]
    fn an_address_is_judged_alike_in_each_of_its_forms(bits in any::<u32>()) {
        let address = IpAddr::from(std::net::Ipv4Addr::from_bits(bits));
        let allowed = AllowNets::default().is_allowed(address);
        for text in [
            format!("http://{address}/"),
            format!("http://{bits}/"),
            format!("http://{bits:#x}/"),
            format!("http://0{bits:o}/"),
            format!("http://{address}./"),
        ] {
            let checked = spelled(&text);
            prop_assert_eq!(&checked.host, &CheckedHost::Address(address));
            prop_assert_eq!(forbidden(&checked, &AllowNets::default()).is_none(), allowed);
        }
        let mapped = spelled(&format!("http://[::ffff:{address}]/"));
        prop_assert!(forbidden(&mapped, &AllowNets::default()).is_some());
    }
}
