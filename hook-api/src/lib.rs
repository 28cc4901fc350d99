//! hook-api
