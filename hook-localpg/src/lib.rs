//! hook-localpg
