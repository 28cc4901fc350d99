//! hook-testkit
