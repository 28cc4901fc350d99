//! hook-janitor
