//! hook-worker
