//! The committed description of the API says what the code says.

use hook_testkit::documents::check;

#[test]
fn openapi() {
    check("openapi.json", hook_api::openapi::text());
}
