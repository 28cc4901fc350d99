//! The policy of one target by examples.
