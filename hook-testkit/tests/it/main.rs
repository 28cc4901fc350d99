//! The kit itself: what tests take for granted.

mod db;
mod stack;
