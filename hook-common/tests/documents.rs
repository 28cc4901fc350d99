//! Documents that are made from tables in the code say what the code says.

use hook_testkit::documents::check;

#[test]
fn metrics() {
    check("metrics.md", &hook_common::metrics::document());
}

#[test]
fn configuration() {
    check(
        "configuration.md",
        &hook_common::config::document::document(),
    );
}
