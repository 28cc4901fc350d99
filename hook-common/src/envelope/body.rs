//! Takes the body of a job out of the request, without copying it where that can be helped.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::fields::Fields;
use super::json;
use super::judge::Judge;
use crate::problem::{Code, Problem};

/// Accepts base64 with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Judge<'_> {
    /// The bytes to send; empty where there is no body or a problem was listed.
    pub(super) fn body(&mut self, fields: &Fields<'_>) -> Bytes {
        let (payload, text) = (fields.payload.is_some(), fields.body.is_some());
        let surplus = match fields.body_base64 {
            Some(_) if payload || text => Some("/body_base64"),
            _ if payload && text => Some("/body"),
            _ => None,
        };
        if let Some(field) = surplus {
            let detail = "only one of payload, body and body_base64 may be given";
            self.refuse(field, detail);
            return Bytes::new();
        }
        let (pointer, found) = if let Some(payload) = fields.payload {
            let pointer = self.shape.payload_pointer();
            (pointer, Ok(self.source.slice_ref(payload.get().as_bytes())))
        } else if let Some(raw) = fields.body {
            (self.under_base("/body"), self.text_body(raw))
        } else if let Some(raw) = fields.body_base64 {
            ("/body_base64".to_owned(), self.base64_body(raw))
        } else {
            return Bytes::new();
        };
        match found {
            Ok(body) if body.len() <= self.limits.job_body_max => return body,
            Ok(_) | Err(Fault::TooLarge) => {
                let max = self.limits.job_body_max;
                let detail = format!("the body of a job has at most {max} bytes");
                self.problems
                    .push(Problem::new(Code::BodyTooLarge, pointer, detail));
            }
            Err(Fault::Field(detail)) => self.refuse(pointer, detail),
        }
        Bytes::new()
    }

    fn text_body(&self, raw: &RawValue) -> Result<Bytes, Fault> {
        match json::string(raw) {
            Some(Cow::Borrowed(text)) => Ok(self.source.slice_ref(text.as_bytes())),
            Some(Cow::Owned(text)) => Ok(text.into()),
            None => Err(Fault::Field("must be a string of Unicode characters")),
        }
    }

    fn base64_body(&self, raw: &RawValue) -> Result<Bytes, Fault> {
        let text = json::string(raw).ok_or(Fault::Field("must be a string"))?;
        // Not even decoded when it cannot fit: four characters stand for three bytes.
        if text.len() / 4 > self.limits.job_body_max / 3 + 1 {
            return Err(Fault::TooLarge);
        }
        BASE64
            .decode(text.as_bytes())
            .map(Bytes::from)
            .map_err(|_| Fault::Field("must be base64 in the standard alphabet"))
    }
}

enum Fault {
    Field(&'static str),
    TooLarge,
}
