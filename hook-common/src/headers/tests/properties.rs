//! What holds for every header.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn accepted_headers_can_be_sent(
        given in prop::collection::vec(("[ -~]{0,12}|[a-z-]{1,9}|\\PC{0,5}", "[ -~\t]{0,20}|\\PC{0,5}"), 0..6)
    ) {
        let Ok(accepted) = check(given.clone(), None) else {
            return Ok(());
        };
        prop_assert_eq!(accepted.len(), given.len());
        for ((name, value), (given_name, given_value)) in accepted.iter().zip(&given) {
            prop_assert_eq!(name, given_name);
            prop_assert_eq!(value.as_str(), given_value.trim_matches([' ', '\t']));
            prop_assert!(http::HeaderName::from_bytes(name.as_bytes()).is_ok());
            prop_assert!(http::HeaderValue::from_str(value).is_ok());
        }
        let names: HashSet<_> = accepted.iter().map(|(name, _)| name.to_lowercase()).collect();
        prop_assert_eq!(names.len(), accepted.len());
        prop_assert_eq!(check(accepted.clone(), None), Ok(accepted));
    }
}
