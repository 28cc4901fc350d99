//! hook-common
