//! The `webhook-signature` of an attempt: one signature per secret, so that a receiver can go
//! from an old secret to a new one without losing a delivery.

use hook_common::{job::JobId, secret_value::SecretValue};

/// Signs an attempt with every secret, in the given order, separated by spaces.
///
/// Each attempt has its own time and so its own signatures; the id is that of the job. Without
/// secrets there is nothing to send.
#[must_use]
pub fn sign<'s>(
    secrets: impl IntoIterator<Item = &'s SecretValue>,
    id: JobId,
    timestamp: i64,
    body: &[u8],
) -> Option<String> {
    let id = id.to_string();
    let signatures: Vec<String> = secrets
        .into_iter()
        .map(|secret| secret.sign(&id, timestamp, body))
        .collect();
    (!signatures.is_empty()).then(|| signatures.join(" "))
}

#[cfg(test)]
mod tests {
    use standardwebhooks::Webhook;

    use super::*;

    const FIRST: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const SECOND: &str = "whsec_Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";

    fn id() -> JobId {
        JobId::parse("01890a5d-ac96-774b-bcce-b302099a8057").unwrap()
    }

    #[test]
    fn sg_04_each_secret_signs_and_both_verify() {
        let secrets = [FIRST, SECOND].map(|text| SecretValue::parse(text).unwrap());
        let value = sign(&secrets, id(), 1_700_000_000, b"{}").unwrap();
        let expected: Vec<String> = [FIRST, SECOND]
            .iter()
            .map(|text| {
                let reference = Webhook::new(text).unwrap();
                let id = id().to_string();
                reference.sign(&id, 1_700_000_000, b"{}").unwrap()
            })
            .collect();
        assert_eq!(value, expected.join(" "));
    }

    #[test]
    fn sg_06_a_retired_secret_signs_no_more() {
        let secrets = [FIRST, SECOND].map(|text| SecretValue::parse(text).unwrap());
        let value = sign(&secrets[..1], id(), 1_700_000_000, b"{}").unwrap();
        assert_eq!(value.split(' ').count(), 1);
        assert_eq!(sign([], id(), 1_700_000_000, b"{}"), None);
    }
}
