//! A bar on the terminal while something long goes on elsewhere.
//!
//! It is drawn on stderr and only if that is a terminal: what a program reads stays clean.

use std::io::{self, IsTerminal as _, Write as _};

/// Characters of a full bar.
const WIDTH: u64 = 30;

/// A bar; dropping it ends its line.
#[derive(Debug)]
pub(crate) struct Bar {
    is_shown: bool,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self {
            is_shown: io::stderr().is_terminal(),
        }
    }

    /// Draws the bar anew.
    pub(crate) fn show(&self, done: u64, total: u64, what: &str) {
        if self.is_shown {
            let _nobody_looks = write!(io::stderr(), "\r\x1b[K{}", bar(done, total, what));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.is_shown {
            let _nobody_looks = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn bar(done: u64, total: u64, what: &str) -> String {
    let total = total.max(done);
    let full = (done * WIDTH).checked_div(total).unwrap_or(0);
    let percent = (done * 100).checked_div(total).unwrap_or(0);
    let bar: String = (0..WIDTH)
        .map(|n| if n < full { '#' } else { '.' })
        .collect();
    format!("[{bar}] {percent:>3} %  {done} of {total} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done() {
        assert_eq!(bar(0, 0, "jobs").matches('#').count(), 0);
        assert_eq!(bar(5, 10, "jobs").matches('#').count(), 15);
        let over = bar(12, 10, "jobs");
        assert!(over.contains("100 %  12 of 12 jobs"), "{over}");
    }
}
